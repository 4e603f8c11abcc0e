// Garbage collection of segments. Reachability is computed by scanning one snapshot, never guessed:
//
//   list what the data servers have ─ snapshot ─ scan the chunks of all branches ─ condemn by a log record what nothing refers
//   to, after which no op may name it ─ delete on the data servers ─ log that they are gone
// Listing comes first: whatever was listed had been granted, and so is known in the snapshot, or is not ours any more.
#include <algorithm>

#include "server/meta/apply.h"
#include "server/meta/disk.h"

namespace archil {
namespace {

// How long a live, steady session may still name a segment that it released: commits under way carry such extents.
constexpr absl::Duration kReleasedGrace = absl::Minutes(10);
constexpr absl::Duration kCallDeadline = absl::Seconds(30);

OpContext Deadline(const DiskHost& host) {
  OpContext ctx;
  ctx.deadline = host.Now() + kCallDeadline;
  return ctx;
}

bool IsLogSegment(SegmentId id) { return (id.value & kLogSegmentBit) != 0; }

Result<std::vector<SegmentRecord>> AllSegments(KvView& view) {
  std::vector<SegmentRecord> out;
  Status bad = Ok();
  ARCHIL_RETURN_IF_ERROR(ScanDiskWide(view, SegmentPrefix(), [&](std::string_view, std::string_view value) {
    auto rec = DecodeSegment(value);
    if (!rec.ok()) {
      bad = rec.error();
      return false;
    }
    out.push_back(std::move(*rec));
    return true;
  }));
  ARCHIL_RETURN_IF_ERROR(bad);
  return out;
}

}  // namespace

struct Disk::Collection {
  struct Listed {
    uint32_t server = 0;
    SegmentInfo info;
  };
  std::vector<Done<uint64_t>> done;
  uint64_t generation = 0;
  std::vector<Listed> listed;
  std::shared_ptr<KvStore> kv;  // owner with the core: the snapshot needs it
  std::unique_ptr<KvView> view;
  std::set<SegmentId> candidates;  // orphaned or released in the snapshot; only they may be condemned
  std::set<SegmentId> referenced;
  uint64_t next_segment = 0;
  std::vector<SegmentRecord> condemned;
  std::vector<SegmentId> deleted;
  uint64_t removed = 0;
  Status failed = Ok();
};

void Disk::CollectGarbage(Done<uint64_t> done) {
  RunOnStrand(Kind::kRead, [this, done = std::move(done)](DiskCore* core) {
    if (core == nullptr) return done(NotServing());
    StartCollection(done);
  });
}

void Disk::ScheduleCollection() {
  strand_->Post([self = shared_from_this()] {
    // One that waits will see what this one would.
    if (self->core_ != nullptr && self->core_->next_collection.empty()) self->StartCollection([](const Result<uint64_t>&) {});
  });
}

void Disk::StartCollection(Done<uint64_t> done) {
  DiskCore& core = *core_;
  core.next_collection.push_back(std::move(done));
  if (core.collecting) return;
  core.collecting = true;
  core.named_meanwhile.clear();
  auto gc = std::make_shared<Collection>();
  gc->generation = generation_;
  gc->done.assign(std::make_move_iterator(core.next_collection.begin()), std::make_move_iterator(core.next_collection.end()));
  core.next_collection.clear();
  lane_->Post([self = shared_from_this(), gc] { self->ListSegments(gc); });
}

bool Disk::CoreOf(const Collection& gc) const { return core_ != nullptr && generation_ == gc.generation && !core_->deleted; }

void Disk::ListSegments(const std::shared_ptr<Collection>& gc) {
  for (const DataServerInfo& server : host_.env.data.All()) {
    DataService* data = host_.env.data.ById(server.id);
    if (data == nullptr || stopped_.load()) continue;
    auto listed = data->List(Deadline(host_), id_);
    if (!listed.ok()) continue;  // its segments are looked at another time
    for (SegmentInfo& info : *listed) gc->listed.push_back({server.id, std::move(info)});
  }
  strand_->Post([self = shared_from_this(), gc] { self->SnapshotForCollection(gc); });
}

void Disk::SnapshotForCollection(const std::shared_ptr<Collection>& gc) {
  if (!CoreOf(*gc)) return FinishCollection(gc);
  gc->kv = core_->kv;
  gc->view = gc->kv->Snapshot();
  gc->next_segment = core_->disk.next_segment;
  lane_->Post([self = shared_from_this(), gc] { self->FindReferences(gc); });
}

void Disk::FindReferences(const std::shared_ptr<Collection>& gc) {
  const auto find = [&]() -> Status {
    ARCHIL_ASSIGN_OR_RETURN(const auto segments, AllSegments(*gc->view));
    for (const SegmentRecord& s : segments) {
      if (s.state == SegmentRecord::State::kOrphaned || s.state == SegmentRecord::State::kReleased) gc->candidates.insert(s.id);
    }
    if (gc->candidates.empty()) return Ok();
    std::vector<BranchId> branches;
    ARCHIL_RETURN_IF_ERROR(ScanDiskWide(*gc->view, BranchPrefix(), [&](std::string_view logical, std::string_view) {
      branches.push_back(BranchId{FirstIdOfKey(logical)});
      return true;
    }));
    Status bad = Ok();
    for (BranchId branch : branches) {
      // Every version of every chunk: older epochs and hidden ones are somebody's view.
      const std::string begin = BranchedKey(branch, TablePrefix(Table::kChunk));
      ARCHIL_RETURN_IF_ERROR(gc->view->Scan(begin, PrefixEnd(begin), [&](std::string_view, std::string_view value) {
        if (IsTombstone(value)) return true;
        auto chunk = DecodeChunk(value);
        if (!chunk.ok()) {
          bad = chunk.error();
          return false;
        }
        for (const StoredExtent& e : chunk->extents) {
          if (e.kind == ExtentKind::kSegment) gc->referenced.insert(e.segment);
        }
        return true;
      }));
      ARCHIL_RETURN_IF_ERROR(bad);
    }
    return Ok();
  };
  gc->failed = find();
  gc->view.reset();
  gc->kv.reset();
  PostOnStrand(Kind::kChange, [self = shared_from_this(), gc](DiskCore*) {
    gc->failed.ok() ? self->Condemn(gc) : self->FinishCollection(gc);
  });
}

bool Disk::MayCondemn(DiskCore& core, const SegmentRecord& segment) const {
  // Also one that its session named after the snapshot and lost since.
  if (core.named_meanwhile.contains(segment.id)) return false;
  if (segment.state == SegmentRecord::State::kOrphaned) return true;
  if (segment.state != SegmentRecord::State::kReleased) return false;
  const BootTime now = host_.Now();
  const BootTime released = core.released_at.try_emplace(segment.id, now).first->second;
  const Holder* holder = core.table.Find(segment.session);
  if (holder == nullptr || holder->lease.Expired(now)) return false;
  return now - std::max(released, holder->lease.steady_since) >= kReleasedGrace;
}

void Disk::Condemn(const std::shared_ptr<Collection>& gc) {
  if (!CoreOf(*gc)) return FinishCollection(gc);
  const auto condemn = [&]() -> Status {
    ARCHIL_ASSIGN_OR_RETURN(const auto segments, AllSegments(*core_->kv));
    SegmentsCondemnedRecord record;
    for (const SegmentRecord& segment : segments) {
      if (segment.state == SegmentRecord::State::kCondemned) {
        gc->condemned.push_back(segment);  // of a pass that was interrupted
        continue;
      }
      // Let go after the snapshot (or made after it): references to it may not have been looked for.
      if (!gc->candidates.contains(segment.id) || gc->referenced.contains(segment.id) || !MayCondemn(*core_, segment)) continue;
      record.segments.push_back(segment.id);
      gc->condemned.push_back(segment);
    }
    if (record.segments.empty()) return Ok();
    host_.metrics.segments_condemned += record.segments.size();
    for (SegmentId id : record.segments) core_->released_at.erase(id);
    return Change(*core_, record);
  };
  gc->failed = condemn();
  if (!gc->failed.ok()) return FinishCollection(gc);
  core_->log->WhenDurable([self = shared_from_this(), gc](Status s) {
    gc->failed = s;
    if (s.ok()) {
      self->lane_->Post([self, gc] { self->DeleteCondemned(gc); });
    } else {
      self->PostOnStrand(Kind::kChange, [self, gc](DiskCore*) { self->FinishCollection(gc); });
    }
  });
}

void Disk::DeleteCondemned(const std::shared_ptr<Collection>& gc) {
  std::set<SegmentId> gone;
  const auto remove = [&](uint32_t server, SegmentId segment) {
    DataService* data = host_.env.data.ById(server);
    return data != nullptr && !stopped_.load() && data->Delete(Deadline(host_), {id_, segment}).ok();
  };
  for (const SegmentRecord& segment : gc->condemned) {
    const bool all = std::all_of(segment.servers.begin(), segment.servers.end(), [&](uint32_t s) { return remove(s, segment.id); });
    if (!all) continue;
    gone.insert(segment.id);
    gc->deleted.push_back(segment.id);
  }
  ManifestStore store(host_.coord, id_);
  auto manifest = store.Load();
  std::map<SegmentId, bool> log_segments;  // and whether it is closed
  if (manifest.ok()) {
    for (const LogSegment& s : manifest->segments) log_segments[s.segment] = s.closed;
  }
  PostOnStrand(Kind::kChange, [self = shared_from_this(), gc, log_segments, known_log = manifest.ok() ? manifest->next_segment : 0](DiskCore*) {
    if (!self->CoreOf(*gc)) return self->FinishCollection(gc);
    // What the servers hold beside what is known: removed if its number was ours once, sealed if nobody appends to it any more.
    std::vector<Collection::Listed> stray;
    std::vector<SegmentRecord> to_seal;
    for (const Collection::Listed& l : gc->listed) {
      const SegmentId id = l.info.key.segment;
      const bool open = l.info.state == SegmentState::kOpen;
      if (IsLogSegment(id)) {
        const auto it = log_segments.find(id);
        if (it == log_segments.end()) {
          if ((id.value & ~kLogSegmentBit) < known_log) stray.push_back(l);
        } else if (it->second && open) {
          to_seal.push_back({id, SessionId{0}, SegmentRecord::State::kReleased, UINT64_MAX, {l.server}});
        }
        continue;
      }
      auto raw = GetDiskWide(*self->core_->kv, SegmentTableKey(id));
      if (!raw.ok()) continue;
      if (!*raw) {
        if (id.value < gc->next_segment) {
          stray.push_back(l);
        } else {
          ++self->host_.metrics.segments_unexplained;  // never granted, as far as the log knows: a trace of damage, kept
        }
        continue;
      }
      auto rec = DecodeSegment(**raw);
      if (rec.ok() && open && (rec->state == SegmentRecord::State::kOrphaned || rec->state == SegmentRecord::State::kReleased)) {
        to_seal.push_back(std::move(*rec));
      }
    }
    if (!to_seal.empty()) self->SealInBackground(std::move(to_seal));
    if (stray.empty()) return self->FinishCollection(gc);
    self->lane_->Post([self, gc, stray] {
      for (const auto& l : stray) {
        DataService* data = self->host_.env.data.ById(l.server);
        if (data != nullptr && data->Delete(Deadline(self->host_), l.info.key).ok()) ++gc->removed;
      }
      self->PostOnStrand(Kind::kChange, [self, gc](DiskCore*) { self->FinishCollection(gc); });
    });
  });
}

void Disk::FinishCollection(const std::shared_ptr<Collection>& gc) {
  Result<uint64_t> answer = gc->removed + gc->deleted.size();
  if (!gc->failed.ok()) answer = gc->failed.error();
  if (core_ == nullptr || generation_ != gc->generation) {
    answer = NotServing();
  } else {
    ++host_.metrics.gc_runs;
    host_.metrics.segments_deleted += gc->removed + gc->deleted.size();
    if (!gc->deleted.empty()) {
      if (const Status s = Change(*core_, SegmentsDeletedRecord{gc->deleted}); !s.ok()) answer = s.error();
    }
    core_->collecting = false;
    if (!core_->next_collection.empty() && !core_->deleted) {
      Done<uint64_t> next = std::move(core_->next_collection.front());
      core_->next_collection.pop_front();
      StartCollection(std::move(next));
    }
  }
  for (auto& done : gc->done) done(answer);
}

void Disk::SealInBackground(std::vector<SegmentRecord> segments) {
  if (segments.empty() || stopped_.load()) return;
  lane_->Post([self = shared_from_this(), segments = std::move(segments)] {
    for (const SegmentRecord& s : segments) {
      for (uint32_t server : s.servers) {
        DataService* data = self->host_.env.data.ById(server);
        // Not found: nothing was ever appended. Other failures are made good by the next collection.
        if (data != nullptr && !self->stopped_.load()) (void)data->Seal(Deadline(self->host_), {self->id_, s.id}, s.token);
      }
    }
  });
}

}  // namespace archil
