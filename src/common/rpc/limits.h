// Limits of messages, the same at both ends.
#pragma once

#include <cstddef>
#include <cstdint>

namespace archil {

inline constexpr int kMaxMessageBytes = 64 << 20;      // gRPC refuses larger ones
inline constexpr uint64_t kMaxReadBytes = 8ULL << 20;  // of one Read on the wire; a client splits longer ones
inline constexpr size_t kReplyCutBytes = 4 << 20;      // replies that can be continued are cut after this much
inline constexpr size_t kSegmentsPerList = 100'000;    // in one reply of List
inline constexpr size_t kMaxReleasedSegments = 65'536; // in one ReleaseSegments
inline constexpr size_t kMaxRights = 4 << 20;          // in one Reclaim or answer; a recall of alone names all that is kept
// On a session's stream, where a heartbeat may have to wait for one message on its way:
inline constexpr size_t kMaxStreamMessage = 16 << 10;   // bytes of one to the server; a larger answer to a recall is a call of its own
inline constexpr size_t kMessagesPerAnswer = 512;       // in one answer of Poll, under 32 KiB; the rest comes with the next
inline constexpr size_t kMaxSessionCalls = 64;          // that a client has under way
inline constexpr size_t kMaxCallsServed = 2 * kMaxSessionCalls;  // a stream with more is ended
inline constexpr size_t kMaxText = 1024;               // names of clients and such

}  // namespace archil
