// Flight: one call through the simulated network. Part of network.cc's links.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "tests/sim/network.h"

namespace archil::sim {

enum class CallKind : uint8_t { kRead, kChange };

constexpr absl::Duration kCancelPoll = absl::Milliseconds(20);  // cancelled contexts do not wake us
constexpr absl::Duration kDeaf = absl::Seconds(3);  // after so long without an answer over a cut link a caller gives up

inline bool Drawn(Random& random, uint32_t of_1000) { return of_1000 > 0 && random.Below(1000) < of_1000; }

inline absl::Duration DrawDelay(Network& network) {
  Random& random = network.scheduler().random();
  const NetworkTuning& tuning = network.tuning();
  const absl::Duration most = Drawn(random, tuning.slow) ? tuning.slowest : tuning.usual;
  return absl::Microseconds(20 + random.Below(static_cast<uint64_t>(absl::ToInt64Microseconds(most))));
}

// Waits until the client's links are whole. False: what travels is lost.
inline bool PassLink(Network& network, const ClientEnd& end) {
  SimScheduler& scheduler = network.scheduler();
  while (scheduler.now() < end.cut_until) {
    ++network.counts.cut;
    if (scheduler.random().Below(2) == 0) return false;
    scheduler.Sleep(end.cut_until - scheduler.now());  // it is sent again when they are
  }
  return true;
}

// `call` holds copies of everything that it needs: it may run after the caller has left, and twice.
template <class R>
class Flight : public std::enable_shared_from_this<Flight<R>> {
 public:
  using Call = std::function<R(const OpContext&)>;

  Flight(Network& network, std::shared_ptr<ClientEnd> end, const char* name, CallKind kind, Call call)
      : network_(network),
        end_(std::move(end)),
        name_(name),
        kind_(kind),
        call_(std::move(call)),
        mu_(network.scheduler()),
        cv_(network.scheduler()) {}

  R Run(const OpContext& ctx) {
    SimScheduler& scheduler = network_.scheduler();
    ++network_.counts.calls;
    if (end_->dead) return Code::kUnavailable;
    if (ctx.cancelled()) return Code::kInterrupted;
    OpContext theirs = ctx;
    theirs.cancel = &given_up_;
    auto self = this->shared_from_this();
    Fly("net", [self, theirs] { self->Travel(theirs); });
    const bool deaf = scheduler.now() < end_->cut_until;
    const BootTime until = deaf ? std::min(ctx.deadline, scheduler.clock().Boot() + kDeaf) : ctx.deadline;
    MutexLock lock(mu_);
    while (!answer_) {
      const BootTime now = scheduler.clock().Boot();
      if (ctx.cancelled() || end_->dead) return GiveUp(Code::kInterrupted);
      if (now >= until) return GiveUp(kind_ == CallKind::kChange ? Code::kUnknown : Code::kUnavailable);
      cv_.WaitUntil(mu_, ctx.cancel == nullptr ? until : std::min(until, now + kCancelPoll));
    }
    return std::move(*answer_);
  }

 private:
  void Fly(const char* what, std::function<void()> body) {
    ++network_.flying;
    (void)network_.scheduler().Spawn(what, [&network = network_, body = std::move(body)] {
      body();
      --network.flying;
    });
  }

  R GiveUp(Code code) {
    given_up_.Cancel();
    return code;
  }

  void Travel(OpContext ctx) {
    SimScheduler& scheduler = network_.scheduler();
    Random& random = scheduler.random();
    scheduler.Sleep(DrawDelay(network_));
    if (!PassLink(network_, *end_)) return Broken();
    const NetworkTuning& tuning = network_.tuning();
    if (Drawn(random, tuning.twice)) {
      ++network_.counts.twice;
      auto self = this->shared_from_this();
      Fly("net-copy", [self, ctx] { self->Copy(ctx); });
    }
    if (Drawn(random, tuning.lose_request)) {
      ++network_.counts.lost;
      scheduler.Note(end_->name + " loses the request of " + name_);
      // Refused, then it is known that nothing happened, or the connection broke.
      return Answer(kind_ == CallKind::kRead || random.Below(2) == 0 ? Code::kUnavailable : Code::kUnknown);
    }
    R answer = call_(ctx);
    if (BandOf(answer.code()) != Band::kOk || kind_ == CallKind::kChange)
      scheduler.Note(fmt::format("{} did {}: {}", end_->name, name_, CodeName(answer.code())));
    scheduler.Sleep(DrawDelay(network_));
    if (!PassLink(network_, *end_)) return Broken();
    if (Drawn(random, tuning.lose_answer)) {
      ++network_.counts.lost;
      scheduler.Note(end_->name + " loses the answer of " + name_);
      return Answer(kind_ == CallKind::kRead ? Code::kUnavailable : Code::kUnknown);
    }
    Answer(std::move(answer));
  }

  // The link was cut: the caller hears that the connection broke when it is whole again, unless it has given up before.
  void Broken() {
    SimScheduler& scheduler = network_.scheduler();
    if (scheduler.now() < end_->cut_until) scheduler.Sleep(end_->cut_until - scheduler.now());
    scheduler.Sleep(DrawDelay(network_));
    Answer(kind_ == CallKind::kChange ? Code::kUnknown : Code::kUnavailable);
  }

  // It overtakes the first one, or comes when all is long over.
  void Copy(OpContext ctx) {
    SimScheduler& scheduler = network_.scheduler();
    const auto latest = static_cast<uint64_t>(absl::ToInt64Microseconds(network_.tuning().latest_copy));
    scheduler.Sleep(absl::Microseconds(scheduler.random().Below(scheduler.random().Below(2) == 0 ? 1000 : latest)));
    scheduler.Note(end_->name + " has a copy of " + name_);
    // Whoever waits at the server for nobody waits not for long.
    ctx.cancel = nullptr;
    ctx.deadline = std::min(ctx.deadline, scheduler.clock().Boot() + absl::Seconds(1));
    if (ctx.deadline > scheduler.clock().Boot()) (void)call_(ctx);
  }

  void Answer(R answer) {
    MutexLock lock(mu_);
    answer_ = std::move(answer);
    cv_.SignalAll();
  }

  Network& network_;
  const std::shared_ptr<ClientEnd> end_;  // owners: the client's links and its flights
  const char* const name_;
  const CallKind kind_;
  const Call call_;
  CancelFlag given_up_;
  Mutex mu_;
  CondVar cv_;
  std::optional<R> answer_ ABSL_GUARDED_BY(mu_);
};

}  // namespace archil::sim
