#include "server/meta/delegation/space_book.h"

#include <algorithm>
#include <utility>

#include "common/env/planted.h"

namespace archil {
namespace {

constexpr uint64_t kHeadroomPart = 16;          // of what is free
constexpr uint64_t kSmallestHeadroom = 1 << 20;  // less than that is none: near the quota credits are exact

}  // namespace

uint64_t SpaceBook::CreditOf(SessionId session) const {
  const auto it = credits_.find(session);
  return it == credits_.end() ? 0 : it->second;
}

void SpaceBook::Set(SessionId session, uint64_t credit) {
  total_ += credit - CreditOf(session);
  if (credit == 0) {
    credits_.erase(session);
  } else {
    credits_[session] = credit;
  }
}

std::optional<uint64_t> SpaceBook::Decide(uint64_t room, uint64_t held, uint64_t least, uint64_t wanted) {
  if (wanted <= held) return wanted;
  if (least > room) return std::nullopt;
  uint64_t headroom = std::min(wanted - least, (room - least) / kHeadroomPart);
  if (headroom < kSmallestHeadroom) headroom = 0;
  return std::max(least + headroom, held);
}

void SpaceBook::Cancel(uint64_t wait) {
  waits_.remove_if([&](const Wait& w) { return w.id == wait; });
}

std::vector<uint64_t> SpaceBook::Overtaken(SessionId session, uint64_t request) {
  std::vector<uint64_t> out;
  waits_.remove_if([&](const Wait& w) {
    const bool older = w.session == session && w.request < request;
    if (older) out.push_back(w.id);
    return older;
  });
  return out;
}

void SpaceBook::Returned(SessionId session, uint64_t message) {
  const auto it = asked_.find(session);
  if (it != asked_.end() && it->second <= message) asked_.erase(it);
}

void SpaceBook::Gone(SessionId session) {
  Set(session, 0);
  asked_.erase(session);
}

void SpaceBook::Look(uint64_t quota, uint64_t used, BootTime now, const std::function<std::vector<SessionId>()>& live, SpaceEffects& out) {
  for (auto it = waits_.begin(); it != waits_.end();) {
    if (now < it->deadline) {
      ++it;
      continue;
    }
    out.failed.push_back({it->id, Error(Code::kUnavailable, "others have not returned yet what they do not need of the disk's quota")});
    it = waits_.erase(it);
  }
  while (!waits_.empty()) {
    Wait& first = waits_.front();
    const uint64_t held = CreditOf(first.session);
    const uint64_t taken = used + (Planted(Plant::kCreditTwice) ? 0 : total_ - held);
    const auto credit = Decide(quota > taken ? quota - taken : 0, held, first.least, first.wanted);
    if (credit) {
      Set(first.session, *credit);
      out.grants.push_back({first.id, first.session, first.request, *credit});
      waits_.pop_front();
      continue;
    }
    if (AskOthers(first, live(), out)) return;
    out.failed.push_back({first.id, Error(Code::kNoSpace, "the disk's quota is used up")});
    waits_.pop_front();
  }
}

// Once each. True: somebody owes an answer.
bool SpaceBook::AskOthers(Wait& wait, const std::vector<SessionId>& live, SpaceEffects& out) {
  bool owed = false;
  for (const SessionId session : live) {
    if (session == wait.session) continue;
    if (wait.asked.insert(session).second && !asked_.contains(session)) {
      asked_[session] = UINT64_MAX;  // until its number is known
      out.ask.push_back(session);
    }
    owed = owed || asked_.contains(session);
  }
  return owed;
}

BootTime SpaceBook::NextDeadline() const {
  BootTime next = BootTime::Infinite();
  for (const Wait& wait : waits_) next = std::min(next, wait.deadline);
  return next;
}

}  // namespace archil
