#include "client/read/segment_reader.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"

namespace archil {
namespace {

constexpr uint64_t kBlock = BlockCache::kBlock;
constexpr uint64_t kFetchMax = 1 << 20;  // one read of a data server

}  // namespace

SegmentReader::SegmentReader(const MountEnv& env, Session& session, BlockCache& cache)
    : env_(env), session_(session), cache_(cache), mu_(env.scheduler) {}

Status SegmentReader::Read(const OpContext& ctx, SegmentId segment, uint64_t offset, uint64_t length, bool neighbours,
                           std::vector<Buffer>& out) {
  while (length > 0) {
    const uint64_t block = offset / kBlock;
    const uint64_t within = offset % kBlock;
    uint64_t got = std::min(length, kBlock - within);
    if (auto bytes = cache_.Get(segment, block); bytes && bytes->size() >= within + got) {
      out.push_back(bytes->Slice(within, got));
    } else {
      if (!ctx.may_block) return Code::kWouldBlock;
      // Served from what was fetched: in a small cache its blocks may have pushed each other out already.
      ARCHIL_ASSIGN_OR_RETURN(const Buffer fetched, Fetch(ctx, segment, offset, length, neighbours));
      got = std::min<uint64_t>(length, fetched.size() - within);
      out.push_back(fetched.Slice(within, got));
    }
    offset += got;
    length -= got;
  }
  return Ok();
}

void SegmentReader::Learn(SegmentId segment, const DataServerInfo& server) {
  MutexLock lock(mu_);
  places_[segment].server = server;
}

void SegmentReader::Wrote(SegmentId segment, uint64_t offset, const Buffer& bytes) {
  {
    MutexLock lock(mu_);
    Place& place = places_[segment];
    place.length = std::max(place.length, offset + bytes.size());
  }
  uint64_t at = 0;
  while (at < bytes.size()) {
    const uint64_t within = (offset + at) % kBlock;
    const uint64_t block = (offset + at) / kBlock;
    const uint64_t n = std::min<uint64_t>(kBlock - within, bytes.size() - at);
    if (within == 0) {
      cache_.Put(segment, block, bytes.Slice(at, n));
    } else if (auto before = cache_.Get(segment, block); before && before->size() == within) {
      std::string joined(before->view());
      joined.append(bytes.view().substr(at, n));
      cache_.Put(segment, block, Buffer(std::move(joined)));
    }  // else the start of the block is not here any more: it is fetched when somebody wants it
    at += n;
  }
}

Result<SegmentReader::Place> SegmentReader::Locate(const OpContext& ctx, SegmentId segment, uint64_t at_least) {
  Place place;
  bool known = false;
  {
    MutexLock lock(mu_);
    if (const auto it = places_.find(segment); it != places_.end()) {
      place = it->second;
      known = !place.server.address.empty();
    }
  }
  if (known && place.length >= at_least) return place;
  if (!known) {
    auto servers = env_.meta.LocateSegment(ctx, session_.id(), segment);
    if (!servers.ok()) return session_.Note(servers.error());
    if (servers->empty()) return Error(Code::kNotFound, "no data server holds the segment");
    place.server = servers->front();
  }
  const SegmentKey key{session_.opened().disk.id, segment};
  ARCHIL_ASSIGN_OR_RETURN(const SegmentInfo info, env_.data.For(place.server).Stat(ctx, key));
  place.length = info.length;
  MutexLock lock(mu_);
  places_[segment] = place;
  return place;
}

Result<Buffer> SegmentReader::Fetch(const OpContext& ctx, SegmentId segment, uint64_t offset, uint64_t length, bool neighbours) {
  ARCHIL_ASSIGN_OR_RETURN(const Place place, Locate(ctx, segment, offset + length));
  if (offset + length > place.length) {
    return Error(Code::kCorrupt, "a file names bytes past the end of its segment");
  }
  const uint64_t begin = offset / kBlock * kBlock;
  uint64_t end = std::min((offset + length + kBlock - 1) / kBlock * kBlock, begin + kFetchMax);
  if (neighbours) end = begin + kFetchMax;
  end = std::min(end, place.length);
  const SegmentKey key{session_.opened().disk.id, segment};
  ARCHIL_ASSIGN_OR_RETURN(const Buffer bytes, env_.data.For(place.server).Read(ctx, key, begin, end - begin));
  if (bytes.size() != end - begin) return Error(Code::kCorrupt, "a data server answered with fewer bytes than asked for");
  fetches_.fetch_add(1);
  fetched_bytes_.fetch_add(bytes.size());
  for (uint64_t at = 0; at < bytes.size(); at += kBlock) {
    cache_.Put(segment, (begin + at) / kBlock, bytes.Slice(at, std::min<uint64_t>(kBlock, bytes.size() - at)));
  }
  return bytes;
}

}  // namespace archil
