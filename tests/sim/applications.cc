#include "tests/sim/applications.h"

#include <fmt/format.h>

namespace archil::sim {
namespace {

constexpr const char* kNames[] = {"a", "b", "c"};
constexpr uint64_t kLongest = 40;  // bytes of a file, about

class Runner {
 public:
  Runner(const Application& app, const std::function<void(SimClient&, Event&)>& call)
      : app_(app), call_(call), random_(app.scheduler.random()) {}

  void Run() {
    for (int i = 0; i < app_.scripts && !over_; ++i) {
      if (random_.Below(3) == 0) app_.scheduler.Sleep(absl::Milliseconds(random_.Below(400)));
      Script();
      CloseAll();
    }
  }

 private:
  Event Call(Event event) {
    if (over_) {
      event.unknown = true;
      return event;
    }
    event.thread = app_.thread;
    call_(app_.client, event);
    if (event.unknown) over_ = true;
    return event;
  }
  static Event About(Verb verb, InodeId ino) {
    Event event;
    event.verb = verb;
    event.ino = ino;
    return event;
  }
  Event Named(Verb verb, InodeId dir, const std::string& name) {
    Event event = About(verb, dir);
    event.name = name;
    return Call(event);
  }
  static bool Good(const Event& event) { return !event.unknown && event.code == Code::kOk; }
  std::string Name() { return kNames[random_.Below(3)]; }
  InodeId Find(InodeId dir, const std::string& name) {
    const Event found = Named(Verb::kLookup, dir, name);
    return Good(found) ? found.found : InodeId{};
  }
  // The root, or a directory in it.
  InodeId Dir() {
    if (random_.Below(2) == 0) return kRootInode;
    const InodeId ino = Find(kRootInode, random_.Below(2) == 0 ? "d" : "e");
    return ino ? ino : kRootInode;
  }
  std::string Bytes() {
    return fmt::format("<{}.{}>", app_.client.number(), ++written_ * 2 + static_cast<uint64_t>(app_.thread));
  }

  void OpenAt(InodeId ino) {
    if (Good(Call(About(Verb::kOpen, ino)))) open_.push_back(ino);
  }
  void CloseAll() {
    for (const InodeId ino : std::exchange(open_, {})) Call(About(Verb::kClose, ino));
  }
  void Read(InodeId ino) { Call(About(Verb::kRead, ino)); }
  void Write(InodeId ino) {
    Event event = About(random_.Below(2) == 0 ? Verb::kWrite : Verb::kAppend, ino);
    event.offset = event.verb == Verb::kWrite ? random_.Below(kLongest) : 0;
    event.data = Bytes();
    Call(event);
  }
  void Truncate(InodeId ino) {
    Event event = About(Verb::kTruncate, ino);
    event.size = random_.Below(kLongest);
    Call(event);
  }
  void Rename(Verb verb, InodeId from, const std::string& name, InodeId to, const std::string& new_name) {
    Event event = About(verb, from);
    event.name = name;
    event.to = to;
    event.new_name = new_name;
    Call(event);
  }
  void MaybeFsync(InodeId ino) {
    if (random_.Below(3) == 0) Call(About(Verb::kFsync, ino));
  }

  // A file is made, written, and perhaps put in the place of another.
  void Make(InodeId dir) {
    const std::string name = Name();
    const Event made = Named(Verb::kCreate, dir, name);
    if (!Good(made)) return;
    open_.push_back(made.found);
    Write(made.found);
    MaybeFsync(made.found);
    if (random_.Below(3) == 0) Rename(Verb::kRename, dir, name, Dir(), Name());
  }
  void Rewrite(InodeId ino) {
    OpenAt(ino);
    if (open_.empty()) return;
    if (random_.Below(3) == 0) Truncate(ino);
    Write(ino);
    if (random_.Below(2) == 0) Read(ino);
    if (random_.Below(4) == 0) {
      Truncate(ino);
      Write(ino);
    }
    MaybeFsync(ino);
  }
  void Look(InodeId ino) {
    const Event attr = Call(About(Verb::kGetAttr, ino));
    if (!Good(attr) || attr.directory) return;
    OpenAt(ino);
    if (open_.empty()) return;
    Read(ino);
    if (random_.Below(3) != 0) return;
    app_.scheduler.Sleep(absl::Milliseconds(random_.Below(100)));
    Read(ino);
    Call(About(Verb::kGetAttr, ino));
  }

  // Changes nothing that anybody sees, so it is no event.
  void CheckOutOrIn() {
    const InodeId dir = Dir();
    if (over_ || app_.client.crashed()) return;
    OpContext ctx;
    ctx.deadline = app_.scheduler.clock().Boot() + absl::Seconds(5);
    FsApi& fs = app_.client.mount().fs();
    const bool in = random_.Below(3) == 0;
    const Status done = in ? fs.Checkin(ctx, dir) : fs.Checkout(ctx, dir, random_.Below(3) == 0);
    app_.scheduler.Note(fmt::format("client {} checks {} {}: {}", app_.client.number(), in ? "in" : "out", dir.value, CodeName(done.code())));
  }

  void Script() {
    if (app_.checkouts > 0 && random_.Below(100) < app_.checkouts) CheckOutOrIn();
    const InodeId dir = Dir();
    switch (random_.Below(12)) {
      case 0:
      case 1: return Make(dir);
      case 2:
      case 3: {
        const InodeId ino = Find(dir, Name());
        if (!ino) return;
        const Event attr = Call(About(Verb::kGetAttr, ino));
        if (Good(attr) && !attr.directory) Rewrite(ino);
        return;
      }
      case 4:
      case 5: {
        const InodeId ino = Find(dir, Name());
        if (ino) Look(ino);
        return;
      }
      case 6: {
        Call(About(Verb::kList, dir));
        return;
      }
      case 7: Named(Verb::kMkdir, kRootInode, random_.Below(2) == 0 ? "d" : "e"); return;
      case 8:
        Named(Verb::kUnlink, dir, Name());
        if (random_.Below(3) == 0) Named(Verb::kRmdir, kRootInode, random_.Below(2) == 0 ? "d" : "e");
        return;
      case 9: return Rename(Verb::kRename, dir, Name(), Dir(), Name());
      case 10: return Rename(random_.Below(2) == 0 ? Verb::kExchange : Verb::kRename, dir, Name(), Dir(), Name());
      default: {
        const InodeId ino = Find(dir, Name());
        if (!ino) return;
        const Event attr = Call(About(Verb::kGetAttr, ino));
        if (!Good(attr) || attr.directory) return;
        Event event = About(Verb::kLink, Dir());
        event.to = ino;
        event.name = Name();
        Call(event);
        return;
      }
    }
  }

  const Application& app_;
  const std::function<void(SimClient&, Event&)>& call_;
  Random& random_;
  std::vector<InodeId> open_;
  uint64_t written_ = 0;
  bool over_ = false;
};

}  // namespace

void RunApplication(const Application& application, const std::function<void(SimClient&, Event&)>& call) {
  Runner(application, call).Run();
}

}  // namespace archil::sim
