#include "client/fuse/kernel_abi.h"

#include <linux/fuse.h>

#include <cstring>

namespace archil {
namespace {

// Newer than the headers of Debian 12.
constexpr uint64_t kDirectIoAllowMmap = 1ULL << 36;
constexpr uint32_t kStatx = 52;
constexpr uint32_t kCopyFileRange64 = 53;

struct FlagName {
  uint64_t flag;
  const char* name;
};

constexpr FlagName kFlagNames[] = {
    {FUSE_ASYNC_READ, "async_read"},
    {FUSE_POSIX_LOCKS, "posix_locks"},
    {FUSE_ATOMIC_O_TRUNC, "atomic_o_trunc"},
    {FUSE_EXPORT_SUPPORT, "export_support"},
    {FUSE_BIG_WRITES, "big_writes"},
    {FUSE_DONT_MASK, "dont_mask"},
    {FUSE_SPLICE_WRITE, "splice_write"},
    {FUSE_SPLICE_MOVE, "splice_move"},
    {FUSE_SPLICE_READ, "splice_read"},
    {FUSE_FLOCK_LOCKS, "flock_locks"},
    {FUSE_HAS_IOCTL_DIR, "has_ioctl_dir"},
    {FUSE_AUTO_INVAL_DATA, "auto_inval_data"},
    {FUSE_DO_READDIRPLUS, "readdirplus"},
    {FUSE_READDIRPLUS_AUTO, "readdirplus_auto"},
    {FUSE_ASYNC_DIO, "async_dio"},
    {FUSE_WRITEBACK_CACHE, "writeback_cache"},
    {FUSE_NO_OPEN_SUPPORT, "no_open"},
    {FUSE_PARALLEL_DIROPS, "parallel_dirops"},
    {FUSE_HANDLE_KILLPRIV, "handle_killpriv"},
    {FUSE_POSIX_ACL, "posix_acl"},
    {FUSE_MAX_PAGES, "max_pages"},
    {FUSE_CACHE_SYMLINKS, "cache_symlinks"},
    {FUSE_NO_OPENDIR_SUPPORT, "no_opendir"},
    {FUSE_EXPLICIT_INVAL_DATA, "explicit_inval_data"},
    {FUSE_HANDLE_KILLPRIV_V2, "handle_killpriv_v2"},
    {FUSE_SETXATTR_EXT, "setxattr_ext"},
    {FUSE_INIT_EXT, "init_ext"},
    {kDirectIoAllowMmap, "direct_io_allow_mmap"},
};

constexpr const char* kOpcodeNames[] = {
    nullptr,       "lookup",     "forget",        "getattr",        "setattr",     "readlink",
    "symlink",     nullptr,      "mknod",         "mkdir",          "unlink",      "rmdir",
    "rename",      "link",       "open",          "read",           "write",       "statfs",
    "release",     nullptr,      "fsync",         "setxattr",       "getxattr",    "listxattr",
    "removexattr", "flush",      "init",          "opendir",        "readdir",     "releasedir",
    "fsyncdir",    "getlk",      "setlk",         "setlkw",         "access",      "create",
    "interrupt",   "bmap",       "destroy",       "ioctl",          "poll",        "notify_reply",
    "batch_forget", "fallocate", "readdirplus",   "rename2",        "lseek",       "copy_file_range",
    "setupmapping", "removemapping", "syncfs",    "tmpfile",        "statx",       "copy_file_range_64",
};
static_assert(sizeof(kOpcodeNames) / sizeof(kOpcodeNames[0]) == kCopyFileRange64 + 1);
static_assert(kStatx == FUSE_TMPFILE + 1);

// The argument of a request, zero where the request is too short for it.
template <class T>
T Argument(const void* request, size_t size) {
  T arg{};
  if (size >= sizeof(fuse_in_header) + sizeof(T)) {
    std::memcpy(&arg, static_cast<const char*>(request) + sizeof(fuse_in_header), sizeof(T));
  }
  return arg;
}

}  // namespace

std::string_view OpcodeName(uint32_t opcode) {
  if (opcode > kCopyFileRange64 || kOpcodeNames[opcode] == nullptr) return {};
  return kOpcodeNames[opcode];
}

RequestPeek Peek(const void* request, size_t size) {
  RequestPeek peek;
  if (size < sizeof(fuse_in_header)) return peek;
  fuse_in_header header;
  std::memcpy(&header, request, sizeof(header));
  peek.opcode = header.opcode;
  peek.unique = header.unique;
  peek.pid = header.pid;
  switch (header.opcode) {
    case FUSE_WRITE: {
      const auto arg = Argument<fuse_write_in>(request, size);
      peek.kill_set_id = arg.write_flags & FUSE_WRITE_KILL_SUIDGID;
      peek.from_page_cache = arg.write_flags & FUSE_WRITE_CACHE;
      break;
    }
    case FUSE_OPEN:
      peek.kill_set_id = Argument<fuse_open_in>(request, size).open_flags & FUSE_OPEN_KILL_SUIDGID;
      break;
    case FUSE_CREATE:
      peek.kill_set_id = Argument<fuse_create_in>(request, size).open_flags & FUSE_OPEN_KILL_SUIDGID;
      break;
    case FUSE_SETATTR:
      peek.kill_set_id = Argument<fuse_setattr_in>(request, size).valid & FATTR_KILL_SUIDGID;
      break;
    case FUSE_GETLK:
    case FUSE_SETLK:
    case FUSE_SETLKW:
      peek.lock_pid = static_cast<int32_t>(Argument<fuse_lk_in>(request, size).lk.pid);
      break;
    case FUSE_INTERRUPT:
      peek.interrupted = Argument<fuse_interrupt_in>(request, size).unique;
      break;
    case FUSE_INIT: {
      const auto arg = Argument<fuse_init_in>(request, size);
      peek.init_flags = arg.flags;
      if (arg.flags & FUSE_INIT_EXT) peek.init_flags |= static_cast<uint64_t>(arg.flags2) << 32;
      break;
    }
    default: break;
  }
  return peek;
}

InitPolicy InitPolicyOf(Personality personality) {
  InitPolicy policy;
  policy.want = FUSE_ASYNC_READ | FUSE_BIG_WRITES | FUSE_DO_READDIRPLUS | FUSE_READDIRPLUS_AUTO |
                FUSE_ASYNC_DIO | FUSE_PARALLEL_DIROPS | FUSE_CACHE_SYMLINKS | FUSE_NO_OPENDIR_SUPPORT |
                FUSE_EXPLICIT_INVAL_DATA | FUSE_HANDLE_KILLPRIV_V2 | kDirectIoAllowMmap;
  // HANDLE_KILLPRIV would make every write clear set-id bits, whoever writes; with V2 the kernel says when.
  policy.refuse = FUSE_AUTO_INVAL_DATA | FUSE_HANDLE_KILLPRIV | FUSE_POSIX_ACL | FUSE_DONT_MASK |
                  FUSE_EXPORT_SUPPORT | FUSE_SPLICE_READ | FUSE_SPLICE_WRITE | FUSE_SPLICE_MOVE;
  // Without OPEN nobody would truncate: with this flag the kernel leaves it to OPEN.
  constexpr uint64_t kShared = FUSE_ATOMIC_O_TRUNC | FUSE_POSIX_LOCKS | FUSE_FLOCK_LOCKS;
  const bool shared = personality == Personality::kShared;
  policy.must = shared ? FUSE_POSIX_LOCKS | FUSE_FLOCK_LOCKS : FUSE_NO_OPEN_SUPPORT;
  (shared ? policy.want : policy.refuse) |= kShared;
  // Write-back caching hides dirty data from the core, and the kernel would not see what others make of a file.
  const bool writeback = personality == Personality::kExclusiveWriteback;
  (writeback ? policy.must : policy.refuse) |= FUSE_WRITEBACK_CACHE;
  policy.want |= policy.must;
  return policy;
}

uint64_t CorrectInitReply(void* reply, size_t size, uint64_t offered, const InitPolicy& policy) {
  fuse_init_out out;
  if (size < sizeof(out)) return 0;
  std::memcpy(&out, reply, sizeof(out));
  uint64_t flags = out.flags | (static_cast<uint64_t>(out.flags2) << 32);
  if (!(out.flags & FUSE_INIT_EXT)) flags = out.flags;
  flags = (flags | (policy.want & offered)) & ~policy.refuse;
  // The upper half counts only where both sides know that it exists.
  if (offered & FUSE_INIT_EXT) {
    flags |= FUSE_INIT_EXT;
  } else {
    flags &= 0xffffffffULL & ~static_cast<uint64_t>(FUSE_INIT_EXT);
  }
  out.flags = static_cast<uint32_t>(flags);
  out.flags2 = static_cast<uint32_t>(flags >> 32);
  std::memcpy(reply, &out, sizeof(out));
  return flags;
}

std::vector<std::string> InitFlagNames(uint64_t flags) {
  std::vector<std::string> names;
  for (const FlagName& f : kFlagNames) {
    if (flags & f.flag) names.emplace_back(f.name);
  }
  return names;
}

}  // namespace archil
