#include "tests/sim/world.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "tests/sim/applications.h"

namespace archil::sim {
namespace {

using test::MemCluster;

constexpr absl::Duration kOp = absl::Seconds(60);
constexpr absl::Duration kHang = absl::Seconds(10);  // an operation may take after the last fault

class World {
 public:
  World(SimScheduler& scheduler, const SimSetup& setup, SimTotals& totals)
      : scheduler_(scheduler),
        setup_(setup),
        totals_(totals),
        network_(scheduler),
        random_(scheduler.random()),
        mount_random_(SeededRandom(setup.seed * 211 + 1)),
        cluster_(ClusterOptions()),
        clients_(setup.clients),
        base_() {}

  void Run() {
    Check(cluster_.Start(), "start");
    Check(cluster_.meta().CreateDisk({}, "sim", setup_.quota).ok() ? Ok() : Status(Code::kInternal), "create the disk");
    auto watcher = scheduler_.Spawn("watcher", [this] { Watch(); });
    for (int round = 0; round < setup_.rounds; ++round) Round(round);
    over_ = true;
    watcher->Join();
    Finish();
    totals_.crashes += cluster_.crashes();
    totals_.lost_calls += network_.counts.lost;
    totals_.cuts += network_.counts.cut;
    totals_.copies += network_.counts.twice;
  }

 private:
  test::MemClusterOptions ClusterOptions() {
    test::MemClusterOptions options;
    options.seed = setup_.seed;
    options.data_servers = 2;
    options.scheduler = &scheduler_;
    options.meta.recall_grace = absl::Seconds(2);
    options.meta.min_lease = absl::Milliseconds(100);
    options.meta.flush_interval = absl::Seconds(3);
    options.meta.rights_kept = setup_.rights_kept;
    options.on_disk_step = [this](MemFiles::Call call) {
      if (call == MemFiles::Call::kSync) scheduler_.Sleep(absl::Microseconds(random_.Below(800)));
    };
    return options;
  }

  [[noreturn]] void Fail(const std::string& what) { scheduler_.Fail(what); }
  void Check(const Status& status, const std::string& what) {
    if (!status.ok()) Fail(what + ": " + status.error().ToString());
  }
  OpContext Context() {
    OpContext ctx;
    ctx.deadline = scheduler_.clock().Boot() + kOp;
    return ctx;
  }

  MountConfig Config() {
    MountConfig config;
    config.disk = "sim";
    config.lease = setup_.lease;
    config.inode_limit = setup_.inode_limit;
    config.cache_bytes = setup_.cache_bytes;
    config.flush_after = setup_.flush_after;
    config.op_deadline = config.fsync_deadline = kOp;
    return config;
  }

  // --- clients

  void MountAt(size_t place) {
    auto client =
        std::make_unique<SimClient>(network_, cluster_.meta(), cluster_.data(), *mount_random_, ++last_client_);
    Check(client->Start(Config()), "mount");
    clients_[place] = std::move(client);
  }
  void UnmountAt(size_t place) {
    auto& client = clients_[place];
    totals_.recalls += client->mount().fs().Metrics()["recalls"];
    const auto closed = client->mount().Close(Context());
    if (!closed.ok()) Fail("close: " + closed.error().ToString());
    client.reset();
  }

  // --- a round

  void Round(int round) {
    scheduler_.Note(fmt::format("round {}", round));
    for (size_t i = 0; i < clients_.size(); ++i) {
      if (clients_[i] == nullptr && (i == 0 || round > 0 || random_.Below(2) == 0)) MountAt(i);
      if (clients_[i] != nullptr && random_.Below(4) == 0) clients_[i]->kernel().ForgetAll();
    }
    events_.clear();
    losses_.clear();
    silenced_.clear();
    servers_failed_ = false;
    network_.Tune(setup_.network);
    round_over_ = false;
    last_fault_ = scheduler_.now();
    auto faults = scheduler_.Spawn("faults", [this] { MakeFaults(); });
    std::vector<std::unique_ptr<Thread>> applications;
    for (auto& client : clients_) {
      if (client == nullptr) continue;
      for (int t = 0; t < setup_.threads; ++t) {
        applications.push_back(scheduler_.Spawn("app", [this, &client = *client, t] {
          RunApplication({scheduler_, client, t, setup_.scripts, setup_.checkouts}, [this](SimClient& c, Event& e) { Do(c, e); });
        }));
      }
    }
    for (auto& application : applications) application->Join();
    round_over_ = true;
    faults->Join();
    Heal();
    Judge();
  }

  void Do(SimClient& client, Event& event) {
    event.client = client.number();
    if (client.crashed()) {  // a machine that is gone has no applications
      event.code = Code::kIo;
      event.unknown = true;
      return;
    }
    event.begun = ++counter_;
    const absl::Duration begun = scheduler_.now();
    client.kernel().Call(Context(), event);
    const absl::Duration quiet = scheduler_.now() - std::max(begun, last_fault_);
    totals_.refused += event.code == Code::kHeldElsewhere;
    if (event.code == Code::kHeldElsewhere && setup_.checkouts == 0) Fail("refused, and nothing was checked out: " + ToString(event));
    totals_.no_space += event.code == Code::kNoSpace;
    if (event.code == Code::kNoSpace && setup_.quota == 0) Fail("no space on a disk without a quota: " + ToString(event));
    if (!event.unknown) event.ended = ++counter_;
    scheduler_.Note(ToString(event));
    ++totals_.events;
    ++(event.unknown ? totals_.unknown : totals_.succeeded);
    events_.push_back(event);
    if (quiet > kHang && !client.crashed())
      Fail(fmt::format("an operation took {} s with nothing wrong: {}", absl::ToDoubleSeconds(quiet), ToString(event)));
  }

  void MakeFaults() {
    const uint32_t sum = setup_.cut_short + setup_.cut_long + setup_.crash_client + setup_.crash_meta +
                         setup_.stop_meta + setup_.crash_data;
    while (sum > 0 && !round_over_) {
      scheduler_.Sleep(
          absl::Milliseconds(20 + random_.Below(static_cast<uint64_t>(absl::ToInt64Milliseconds(setup_.pause)))));
      if (round_over_) return;
      Fault(random_.Below(sum));
      last_fault_ = scheduler_.now();
    }
  }

  void Fault(uint64_t drawn) {
    const auto is = [&](uint32_t weight) {
      if (drawn < weight) return true;
      drawn -= weight;
      return false;
    };
    const auto lease = static_cast<uint64_t>(absl::ToInt64Milliseconds(setup_.lease));
    if (is(setup_.cut_short)) return Cut(absl::Milliseconds(1 + random_.Below(lease)));
    if (is(setup_.cut_long)) return Cut(absl::Milliseconds(lease + random_.Below(2 * lease)));
    if (is(setup_.crash_client)) {
      SimClient* client = Any();
      if (client == nullptr || !losses_.empty()) return;
      // What was taken while it was cut off it had lost before.
      losses_.push_back({client->number(), silenced_.contains(client->number()) ? 0 : ++counter_});
      crashed_ = true;
      return client->Crash();
    }
    servers_failed_ = true;
    const MemCluster::Loss loss = random_.Below(2) == 0 ? MemCluster::Loss::kPower : MemCluster::Loss::kProcess;
    if (is(setup_.crash_meta)) {
      scheduler_.Note("the metadata server crashes");
      cluster_.CrashMeta(loss);
    } else if (is(setup_.stop_meta)) {
      scheduler_.Note("the servers stop");
      cluster_.Stop();
    } else {
      scheduler_.Note("a data server crashes");
      cluster_.CrashData(static_cast<uint32_t>(random_.Below(2)), loss);
    }
    scheduler_.Sleep(absl::Milliseconds(random_.Below(random_.Below(4) == 0 ? 2 * lease : lease / 4)));
    Check(cluster_.Start(), "start again");
  }

  SimClient* Any() {
    std::vector<SimClient*> alive;
    for (auto& client : clients_) {
      if (client != nullptr && !client->crashed()) alive.push_back(client.get());
    }
    return alive.empty() ? nullptr : alive[random_.Below(alive.size())];
  }

  void Cut(absl::Duration time) {
    SimClient* client = Any();
    if (client == nullptr) return;
    scheduler_.Note(fmt::format("client {} is cut off for {} ms", client->number(), absl::ToInt64Milliseconds(time)));
    client->CutUntil(scheduler_.now() + time);
    silenced_.insert(client->number());
    scheduler_.Sleep(time);
  }

  // --- after it

  void Heal() {
    NetworkTuning quiet;
    quiet.slow = 0;
    network_.Tune(quiet);
    for (auto& client : clients_) {
      if (client == nullptr) continue;
      const absl::Duration give_up = scheduler_.now() + kOp;
      while (!client->crashed() && !client->active()) {
        if (client->fenced()) {
          WasFenced(*client);
          break;
        }
        if (scheduler_.now() > give_up)
          Fail(fmt::format("client {} does not come back: {}", client->number(),
                           client->mount().fs().GetStatus().state_detail));
        scheduler_.Sleep(absl::Milliseconds(100));
      }
      if (!client->crashed()) continue;
      totals_.recalls += client->mount().fs().Metrics()["recalls"];
      totals_.from_memory += client->kernel().from_memory();
      client.reset();
      ++totals_.losses;
    }
    if (std::all_of(clients_.begin(), clients_.end(), [](const auto& c) { return c == nullptr; })) MountAt(0);
    // Whoever still has its lease from before a restart hears of that with its next heartbeat.
    if (servers_failed_) scheduler_.Sleep(setup_.lease);
  }

  // Its session was ended. That must have a cause: it was cut off, or could not flush because servers were down.
  void WasFenced(SimClient& client) {
    const std::string why = client.mount().fs().GetStatus().state_detail;
    scheduler_.Note(fmt::format("client {} was fenced", client.number()));
    const bool cause = servers_failed_ || silenced_.contains(client.number());
    if (!cause || why.find("has ended") == std::string::npos)
      Fail(fmt::format("client {} is at its end without a cause: {}", client.number(), why));
    losses_.push_back({client.number(), 0});
    client.Crash();
    totals_.recalls += client.mount().fs().Metrics()["recalls"];
  }

  // Others took something of it and it lost what it had changed of that; it goes on.
  void WasSilent(SimClient& client) {
    scheduler_.Note(fmt::format("client {} has lost something", client.number()));
    if (!servers_failed_ && !silenced_.contains(client.number()))
      Fail(fmt::format("client {} lost something without a cause", client.number()));
    losses_.push_back({client.number(), 0, true});
    ++totals_.losses;
  }

  // From here on everything is durable, or lost.
  void SyncAll() {
    for (auto& client : clients_) {
      if (client == nullptr) continue;
      auto report = client->mount().fs().Sync(Context());
      if (client->TakeLost()) {
        WasSilent(*client);
        if (!report.ok()) report = client->mount().fs().Sync(Context());  // that is said once
      }
      if (client->fenced()) {
        WasFenced(*client);
        client.reset();
      } else if (!report.ok()) {
        Fail("sync: " + report.error().ToString());
      }
    }
  }

  void Judge() {
    SyncAll();
    // Whoever shows its tree takes what silent ones hold.
    for (auto& client : clients_) {
      if (client != nullptr && !AddDump(*client)) client.reset();
    }
    // One that had shown its tree may have gone silent since.
    for (auto& client : clients_) {
      if (client == nullptr) continue;
      if (client->TakeLost()) WasSilent(*client);
      if (!client->fenced()) continue;
      WasFenced(*client);
      client.reset();
    }
    if (events_.empty() || events_.back().verb != Verb::kDump) {
      MountAt(0);
      AddDump(*clients_[0]);
    }
    RefTree start = base_;
    for (const int client : silenced_) start.WasSilent(client);
    const Judgement judgement = FindOrder(start, events_, losses_);
    if (judgement.gave_up) ++totals_.no_verdict;
    if (!judgement.found && !judgement.gave_up) Fail("no order explains what was answered: " + judgement.furthest);
    base_ = RefTree(events_.back().tree);
    CheckRecords();
    CheckQuota();
  }

  // False: it was fenced meanwhile.
  bool AddDump(SimClient& client) {
    Event dump;
    dump.verb = Verb::kDump;
    dump.client = client.number();
    dump.thread = setup_.threads;
    dump.begun = ++counter_;
    auto tree = client.Dump(Context());
    if (!tree.ok() && client.fenced()) {
      WasFenced(client);
      ++totals_.losses;
      return false;
    }
    if (!tree.ok()) Fail(fmt::format("client {} cannot read the tree: {}", client.number(), tree.error().ToString()));
    dump.tree = std::move(*tree);
    dump.ended = ++counter_;
    events_.push_back(std::move(dump));
    return true;
  }

  // Everything is flushed.
  void CheckQuota() {
    const auto disk = cluster_.meta().ShowDisk(Context(), "sim");
    if (!disk.ok()) Fail("show the disk: " + disk.error().ToString());
    if (setup_.quota != 0 && disk->used_bytes > setup_.quota) Fail(fmt::format("{} bytes are used of {}", disk->used_bytes, setup_.quota));
  }

  // INV: all is quiet, so the server records at least what each client believes.
  void CheckRecords() {
    const auto recorded = cluster_.meta().ListRights(Context(), "sim", 100'000);
    if (!recorded.ok()) Fail("list rights: " + recorded.error().ToString());
    for (auto& client : clients_) {
      if (client == nullptr || !client->active()) continue;
      for (const HeldDelegation& held : client->mount().fs().Delegations(100'000)) {
        if (held.right == Right::kNone) continue;  // contended: nothing is held
        const bool known = std::any_of(recorded->begin(), recorded->end(), [&](const RightInfo& r) {
          if (r.checkout != held.checkout) return false;
          return r.session == client->mount().session() && (!r.ino || (r.ino == held.ino && r.right >= held.right));
        });
        const bool named = base_.nodes().contains(held.ino) || !held.ino;
        if (!known && named)
          Fail(fmt::format("client {} believes in a right on inode {} that the server does not record",
                           client->number(), held.ino.value));
      }
    }
    // Silent ones keep theirs until somebody wants them; whoever closed or was ended has none.
    for (const RightInfo& right : *recorded) {
      const bool lives = std::any_of(clients_.begin(), clients_.end(), [&](const auto& c) {
        return c != nullptr && c->mount().session() == right.session;
      });
      if (!lives && !crashed_)
        Fail(fmt::format("the server records a right on inode {} of a session that has gone", right.ino.value));
    }
  }

  // --- DLG-1

  void Watch() {
    while (!over_) {
      scheduler_.Sleep(absl::Microseconds(100 + random_.Below(4000)));
      SimScheduler::Alone alone(scheduler_);
      std::vector<std::pair<SimClient*, std::vector<HeldRight>>> all;
      for (auto& client : clients_) {
        if (client == nullptr || !client->mounted() || client->crashed()) continue;
        all.emplace_back(client.get(), client->mount().Believed());
      }
      if (!alone.Undisturbed()) continue;
      ++totals_.watched;
      std::map<InodeId, std::pair<int, Right>> strongest;
      for (const auto& [client, held] : all) {
        for (const HeldRight& right : held) Compare(client->number(), right, strongest);
      }
      const auto everything = strongest.find(InodeId{});
      if (everything == strongest.end()) continue;
      for (const auto& [ino, who] : strongest) {
        if (who.first != everything->second.first)
          Fail(fmt::format("DLG-1: client {} holds everything and client {} inode {}", everything->second.first,
                           who.first, ino.value));
      }
    }
  }

  void Compare(int client, const HeldRight& held, std::map<InodeId, std::pair<int, Right>>& strongest) {
    const auto [it, first] = strongest.emplace(held.ino, std::make_pair(client, held.right));
    if (first || it->second.first == client) return;
    if (held.right == Right::kWrite || it->second.second == Right::kWrite) {
      Fail(fmt::format("DLG-1: clients {} and {} both believe in a right on inode {}, one of them to change it",
                       it->second.first, client, held.ino.value));
    }
  }

  // --- the end

  void Finish() {
    for (size_t i = 0; i < clients_.size(); ++i) {
      if (clients_[i] == nullptr) continue;
      totals_.from_memory += clients_[i]->kernel().from_memory();
      UnmountAt(i);
    }
    // Sessions of clients that crashed keep what nobody wants.
    auto left = cluster_.meta().ShowDisk(Context(), "sim");
    if (!left.ok()) Fail("show the disk: " + left.error().ToString());
    for (const auto& silent : left->clients)
      Check(cluster_.meta().Revoke(Context(), "sim", silent.session, InodeId{}), "end a silent session");
    MountAt(0);
    events_.clear();
    if (!AddDump(*clients_[0])) Fail("a fresh mount was fenced");
    crashed_ = false;
    CheckRecords();
    if (const auto difference = base_.Compare(events_.back().tree))
      Fail("a fresh mount shows another tree: " + *difference);
    UnmountAt(0);
    const auto disk = cluster_.meta().ShowDisk(Context(), "sim");
    if (!disk.ok()) Fail("show the disk: " + disk.error().ToString());
    if (disk->used_inodes != base_.nodes().size())
      Fail(fmt::format("{} inodes are in the tree and {} are used: something was left over", base_.nodes().size(),
                       disk->used_inodes));
    uint64_t with_bytes = 0;
    for (const auto& [ino, shown] : base_.nodes()) with_bytes += !shown.content.empty();
    if (with_bytes == 0 && disk->used_bytes != 0)
      Fail(fmt::format("no file has a byte and {} are used", disk->used_bytes));
    while (network_.flying > 0) scheduler_.Sleep(absl::Milliseconds(100));
    cluster_.Stop();
  }

  SimScheduler& scheduler_;
  const SimSetup setup_;
  SimTotals& totals_;
  Network network_;
  Random& random_;
  std::unique_ptr<Random> mount_random_;
  MemCluster cluster_;
  std::vector<std::unique_ptr<SimClient>> clients_;
  RefTree base_;
  std::vector<Event> events_;
  std::vector<Loss> losses_;
  bool crashed_ = false;         // some client, in this run
  std::set<int> silenced_;       // clients that were cut off in this round
  bool servers_failed_ = false;  // in this round
  uint64_t counter_ = 0;
  int last_client_ = 0;
  bool round_over_ = false;
  bool over_ = false;
  absl::Duration last_fault_;
};

}  // namespace

SimSetup SetupOf(uint64_t seed) {
  const auto random = SeededRandom(seed * 307 + 41);
  SimSetup s;
  s.seed = seed;
  s.clients = 2 + static_cast<int>(random->Below(2));
  s.lease = absl::Milliseconds(random->Below(2) == 0 ? 500 : 2000);
  if (random->Below(3) == 0) {
    s.inode_limit = 3;
    s.cache_bytes = 0;
  }
  if (s.lease < absl::Seconds(1)) s.network.slowest = absl::Milliseconds(80);
  s.flush_after = absl::Milliseconds(random->Below(2) == 0 ? 20 : 5000);
  if (random->Below(2) == 0) s.network.lose_request = s.network.lose_answer = 30;
  if (random->Below(2) == 0) s.network.twice = 40;
  switch (random->Below(6)) {
    case 0: break;
    case 1: s.cut_short = 60, s.cut_long = 40; break;
    case 2: s.crash_client = 50, s.cut_short = 50; break;
    case 3: s.crash_meta = 60, s.crash_data = 40; break;
    case 4: s.crash_meta = 20, s.stop_meta = 20, s.cut_long = 20, s.crash_client = 20, s.crash_data = 20; break;
    default: s.crash_meta = 50, s.crash_client = 50; break;
  }
  if (random->Below(4) == 0) s.rights_kept = 1 + random->Below(3);
  if (random->Below(3) == 0) s.quota = 5 + random->Below(30);
  if (random->Below(4) == 0) s.checkouts = 30;
  return s;
}

SimResult RunSim(const SimSetup& setup, SimTotals& totals) {
  SimScheduler scheduler(setup.seed);
  SimResult result;
  result.failure = scheduler.Run([&] {
    auto world = std::make_unique<World>(scheduler, setup, totals);
    world->Run();
  });
  result.trace = scheduler.trace();
  totals.switches += scheduler.switches();
  ++totals.runs;
  if (result.failure) *result.failure = fmt::format("seed {}: {}", setup.seed, *result.failure);
  return result;
}

}  // namespace archil::sim
