// What of the kernel's FUSE ABI libfuse 3.14 hides or does not know: flags of INIT, names of opcodes, and the
// kill bits of WRITE, OPEN, CREATE and SETATTR. Pure functions over bytes that came from /dev/fuse; short or odd requests give
// empty answers, never a crash. Source: linux/fuse.h, protocol 7.38 and 7.39.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "client/fuse/personality.h"

namespace archil {

// FUSE 7.44 (Linux 6.16) has FUSE_NOTIFY_INC_EPOCH.
inline constexpr uint32_t kMinorWithEpochs = 44;

// Opcodes above this are counted together as "other".
inline constexpr uint32_t kMaxOpcode = 63;

// "lookup", "getattr" …; empty if unknown.
std::string_view OpcodeName(uint32_t opcode);

// What a request says beyond what libfuse hands to its handlers.
struct RequestPeek {
  uint32_t opcode = 0;  // 0: the bytes are no request
  uint64_t unique = 0;
  uint32_t pid = 0;              // thread id of the caller; 0 if it is in no namespace of ours
  bool kill_set_id = false;      // WRITE, OPEN, CREATE, SETATTR: clear set-id bits
  bool from_page_cache = false;  // WRITE: a mapped page written back, the handle is guessed
  int32_t lock_pid = 0;          // GETLK, SETLK, SETLKW: process id of the caller
  uint64_t interrupted = 0;      // INTERRUPT: unique of its target
  uint64_t init_flags = 0;       // INIT: what the kernel offers
};
RequestPeek Peek(const void* request, size_t size);

// INIT flags that we want; those not offered are left out.
struct InitPolicy {
  uint64_t want = 0;    // set if offered
  uint64_t refuse = 0;  // cleared whatever libfuse chose
  uint64_t must = 0;    // of `want`: a mount without them would not keep its promises
};
InitPolicy InitPolicyOf(Personality personality);

// Corrects the flags in `reply` (a struct fuse_init_out of `size` bytes). Returns the flags in force; a reply too short
// to hold them is left alone and gives 0.
uint64_t CorrectInitReply(void* reply, size_t size, uint64_t offered, const InitPolicy& policy);

// Names of the set flags, for `archil status`.
std::vector<std::string> InitFlagNames(uint64_t flags);

}  // namespace archil
