#include "common/env/faults.h"

#include <signal.h>
#include <unistd.h>

#include <charconv>
#include <cstdlib>

namespace archil {

Status Faults::Arm(std::string_view spec) {
  MutexLock lock(mu_);
  while (!spec.empty()) {
    const size_t comma = spec.find(',');
    const std::string_view part = spec.substr(0, comma);
    spec = comma == std::string_view::npos ? std::string_view() : spec.substr(comma + 1);
    const size_t eq = part.find('=');
    if (eq == std::string_view::npos) return Error(Code::kInvalid, "fault without '=': " + std::string(part));
    std::string_view what = part.substr(eq + 1);
    uint64_t count = 1;
    if (const size_t at = what.find('@'); at != std::string_view::npos) {
      const std::string_view n = what.substr(at + 1);
      const auto [end, ec] = std::from_chars(n.data(), n.data() + n.size(), count);
      if (ec != std::errc() || end != n.data() + n.size() || count == 0) {
        return Error(Code::kInvalid, "fault with a bad count: " + std::string(part));
      }
      what = what.substr(0, at);
    }
    Action action;
    if (what == "error") {
      action = Action::kError;
    } else if (what == "kill") {
      action = Action::kKill;
    } else {
      return Error(Code::kInvalid, "fault with an unknown action: " + std::string(part));
    }
    rules_[std::string(part.substr(0, eq))] = Rule{action, count};
    armed_.store(true);
  }
  return Ok();
}

Status Faults::HitSlow(std::string_view point) {
  Action action;
  {
    MutexLock lock(mu_);
    const auto it = rules_.find(point);
    if (it == rules_.end()) return Ok();
    if (--it->second.countdown > 0) return Ok();
    action = it->second.action;
    rules_.erase(it);
  }
  fired_.fetch_add(1);
  if (action == Action::kKill) {
    kill(getpid(), SIGKILL);
    pause();
  }
  return Error(Code::kIo, "fault point " + std::string(point));
}

Faults& ProcessFaults() {
  static Faults* faults = [] {
    auto* f = new Faults;  // lives as long as the process
    if (const char* spec = std::getenv("ARCHIL_FAULTS")) {
      if (const Status s = f->Arm(spec); !s.ok()) {
        const std::string message = "archil: ARCHIL_FAULTS: " + s.error().ToString() + "\n";
        (void)!write(2, message.data(), message.size());
        _exit(2);
      }
    }
    return f;
  }();
  return *faults;
}

}  // namespace archil
