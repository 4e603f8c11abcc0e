// Reads of a session's branch, as the server has it.
#include <fmt/format.h>

#include "server/meta/disk.h"
#include "server/meta/listing.h"

namespace archil {
namespace {

constexpr uint32_t kMaxChunksPerCall = 4096;
constexpr uint64_t kDefaultCapacity = 1ULL << 50;  // bytes that statfs shows without a quota
constexpr uint64_t kShownInodes = 1ULL << 40;

}  // namespace

template <class T>
void Disk::Read(SessionId session, Done<T> done, std::function<Result<T>(DiskCore&, const Records&)> fn) {
  Run<T>(Kind::kRead, std::move(done), [this, session, fn = std::move(fn), received = host_.Now()](DiskCore& core, Done<T> done) {
    const auto read = [&]() -> Result<T> {
      ARCHIL_ASSIGN_OR_RETURN(SessionRecord * rec, LiveSession(core, session, nullptr, received));
      ARCHIL_ASSIGN_OR_RETURN(BranchChain chain, LoadBranchChain(*core.kv, rec->branch));
      ++host_.metrics.reads;
      return fn(core, Records(*core.kv, std::move(chain)));
    };
    Reply(core, Kind::kRead, done, read());
  });
}

void Disk::GetInode(SessionId session, InodeId ino, Done<InodeInfo> done) {
  Read<InodeInfo>(session, std::move(done), [ino](DiskCore&, const Records& records) { return InfoOf(records, ino, InodeId{0}); });
}

void Disk::Lookup(SessionId session, InodeId parent, std::string name, Done<InodeInfo> done) {
  Read<InodeInfo>(session, std::move(done), [session, parent, name = std::move(name)](DiskCore& core, const Records& records) -> Result<InodeInfo> {
    if (name.size() > kMaxName) return Error(Code::kNameTooLong);
    if (!IsValidName(name)) return Error(Code::kInvalid, "not a valid name");
    ARCHIL_ASSIGN_OR_RETURN(auto dentry, records.GetDentry(parent, name));
    if (!dentry) {
      ARCHIL_RETURN_IF_ERROR(DirectoryInfo(records, parent));
      return Error(Code::kNotFound);
    }
    auto info = InfoOf(records, dentry->ino, parent);
    if (!info.ok() && info.code() == Code::kNotFound) return Error(Code::kCorrupt, "a name shows an inode that does not exist");
    if (info.ok()) MarkCovered(core, session, parent, *info);
    return info;
  });
}

void Disk::ReadDir(SessionId session, InodeId ino, std::string after, uint32_t limit, Done<DirPage> done) {
  if (limit == 0 || limit > kMaxDirPage) limit = kMaxDirPage;
  Read<DirPage>(session, std::move(done), [session, ino, after = std::move(after), limit](DiskCore& core, const Records& records) -> Result<DirPage> {
    ARCHIL_ASSIGN_OR_RETURN(DirPage page, ListDirectory(records, ino, after, limit));
    page.position = core.applied;
    MarkCovered(core, session, page);
    return page;
  });
}

void Disk::GetExtents(SessionId session, InodeId ino, uint64_t first_chunk, uint32_t count, Done<std::vector<ChunkExtents>> done) {
  if (count > kMaxChunksPerCall) count = kMaxChunksPerCall;
  Read<std::vector<ChunkExtents>>(
      session, std::move(done), [ino, first_chunk, count](DiskCore&, const Records& records) -> Result<std::vector<ChunkExtents>> {
        ARCHIL_ASSIGN_OR_RETURN(auto inode, records.GetInode(ino));
        if (!inode) return Error(Code::kNotFound);
        if (inode->attr.type != FileType::kRegular) return Error(Code::kInvalid, "only a regular file has data");
        std::vector<ChunkExtents> out;
        for (uint64_t i = 0; i < count && first_chunk + i <= kMaxFileSize / kChunkSize; ++i) {
          ARCHIL_ASSIGN_OR_RETURN(auto extents, records.GetExtents(ino, first_chunk + i));
          out.push_back({first_chunk + i, std::move(extents)});
        }
        return out;
      });
}

void Disk::GetXattrs(SessionId session, InodeId ino, Done<std::map<std::string, std::string>> done) {
  Read<std::map<std::string, std::string>>(session, std::move(done), [ino](DiskCore&, const Records& records) { return records.GetXattrs(ino); });
}

void Disk::LocateSegment(SessionId session, SegmentId segment, Done<std::vector<DataServerInfo>> done) {
  Read<std::vector<DataServerInfo>>(session, std::move(done), [this, segment](DiskCore& core, const Records&) -> Result<std::vector<DataServerInfo>> {
    ARCHIL_ASSIGN_OR_RETURN(auto raw, GetDiskWide(*core.kv, SegmentTableKey(segment)));
    if (!raw) return Error(Code::kNotFound, fmt::format("segment {} does not exist", segment.value));
    ARCHIL_ASSIGN_OR_RETURN(const SegmentRecord rec, DecodeSegment(*raw));
    if (rec.state == SegmentRecord::State::kCondemned) return Error(Code::kNotFound, fmt::format("segment {} was deleted", segment.value));
    return ServersOf(rec.servers);
  });
}

void Disk::StatFs(SessionId session, Done<FsStats> done) {
  Read<FsStats>(session, std::move(done), [this](DiskCore& core, const Records& records) -> Result<FsStats> {
    ARCHIL_ASSIGN_OR_RETURN(const CountersRecord counters, records.GetCounters());
    FsStats stats;
    stats.total_bytes = core.disk.quota_bytes;
    if (stats.total_bytes == 0) stats.total_bytes = host_.config.total_bytes;
    if (stats.total_bytes == 0) stats.total_bytes = kDefaultCapacity;
    stats.used_bytes = counters.bytes;
    stats.free_bytes = stats.total_bytes > counters.bytes ? stats.total_bytes - counters.bytes : 0;
    stats.total_inodes = kShownInodes;
    stats.used_inodes = counters.inodes;
    stats.free_inodes = kShownInodes - std::min(kShownInodes, counters.inodes);
    return stats;
  });
}

}  // namespace archil
