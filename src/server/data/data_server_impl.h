// The inside of DataServer, shared by its source files:
//
//   data_server.cc   the face: admission, the queue, stat, list, delete, stop
//   sync_loop.cc     the syncer: decides and writes queued appends, fences and seals; one sync per file and batch
//   read_path.cc     verified reads, from the local file or the object
//   upload.cc        the uploader: sealed segments to objects, eviction of local copies
//   recovery.cc      what Open makes of the directory
//
// DIR/lock, DIR/segments/<disk>/<segment>.seg (segment file) and .state (StateRecord, absent for most).
//
// Life of an append: admitted and queued (caller) → decided against the segment's state and laid out as frames → written →
// file synced → published (visible to reads) → answered. Only the syncer changes a segment that is open; only the
// uploader one that is sealed. One mutex guards what they share; it is never held over I/O.
#pragma once

#include <deque>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "server/data/data_server.h"
#include "server/data/segment_format.h"

namespace archil {

using FrameIndex = std::vector<FrameRef>;

// One segment that this server has. Fields are guarded by DataServerImpl::mu_; what only the syncer writes
// (visible, length, token, file_end, frames while open) it also reads without.
struct Segment {
  explicit Segment(SegmentKey k) : key(k) {}
  const SegmentKey key;
  SegmentState state = SegmentState::kOpen;
  bool visible = false;    // something of it has been acknowledged; until then nobody but the syncer sees it
  bool broken = false;     // a sync failed: ends at `length`, the file is good below only; the uploader makes a new file
  bool failed = false;     // a sync failed since this process opened it: appends answer kIo
  bool damaged = false;    // acknowledged bytes are bad: never uploaded, nothing cut
  bool deleting = false;
  bool local = false;      // the file exists
  bool in_batch = false;   // the syncer works on it
  bool uploading = false;  // the uploader does
  Status unusable;         // what every call but Delete answers: its length is not known
  uint64_t length = 0;     // acknowledged
  uint64_t token = 0;
  uint64_t file_end = 0;   // position behind the last synced frame; everything below is on stable storage
  uint64_t file_size = 0;  // of a sealed file, which is also the object's
  uint64_t generation = 0; // +1 when the file is replaced by another one
  FrameIndex frames;       // while open or broken or damaged; a sealed one's index is read when needed
  // The syncer's own:
  uint64_t zeroed_to = 0;     // the file is zeros from file_end to here
  bool end_recorded = false;  // broken, and a StateRecord says so
  std::list<SegmentKey>::iterator lru;  // in cached_, while uploaded and local
};
using SegmentPtr = std::shared_ptr<Segment>;  // owners: the map, and whoever works on it at the moment

// An open file of a segment, with the index if it is sealed. Immutable.
struct OpenSegment {
  std::shared_ptr<File> file;  // null: only the object is there
  std::shared_ptr<const FrameIndex> index;
};

// The most recently used OpenSegments, bounded in descriptors and in index entries. Not thread safe.
class OpenCache {
 public:
  static constexpr size_t kMaxOpen = 256;
  static constexpr size_t kMaxIndexEntries = 4u << 20;

  std::shared_ptr<const OpenSegment> Get(SegmentKey key);
  void Put(SegmentKey key, std::shared_ptr<const OpenSegment> open);
  void Drop(SegmentKey key);
  void Clear();
  size_t size() const { return by_key_.size(); }

 private:
  struct Slot {
    std::shared_ptr<const OpenSegment> open;
    std::list<SegmentKey>::iterator order;
  };
  static size_t Weight(const OpenSegment& open) { return open.index ? open.index->size() : 0; }
  std::map<SegmentKey, Slot> by_key_;
  std::list<SegmentKey> order_;  // least recently used first
  size_t entries_ = 0;
};

class DataServerImpl final : public DataServer {
 public:
  DataServerImpl(const DataServerEnv& env, const DataServerConfig& config);
  ~DataServerImpl() override;
  // Takes the lock of the directory, recovers, starts the threads.
  Status Start();

  Status Append(const OpContext& ctx, SegmentKey key, uint64_t token, uint64_t offset, const Buffer& bytes,
                uint64_t checksum) override;
  Result<Buffer> Read(const OpContext& ctx, SegmentKey key, uint64_t offset, uint64_t length) override;
  Result<SegmentInfo> Fence(const OpContext& ctx, SegmentKey key, uint64_t token) override;
  Result<SegmentInfo> Seal(const OpContext& ctx, SegmentKey key, uint64_t token) override;
  Result<SegmentInfo> Stat(const OpContext& ctx, SegmentKey key) override;
  Status Delete(const OpContext& ctx, SegmentKey key) override;
  Result<std::vector<SegmentInfo>> List(const OpContext& ctx, DiskId disk) override;
  void AppendAsync(const OpContext& ctx, SegmentKey key, uint64_t token, uint64_t offset, const Buffer& bytes,
                   uint64_t checksum, std::function<void(Status)> done) override;
  Status DrainUploads(const OpContext& ctx) override;
  void Stop() override;
  std::map<std::string, uint64_t> Metrics() override;

 private:
  struct Request {
    enum class Kind : uint8_t { kAppend, kFence, kSeal };
    Kind kind = Kind::kAppend;
    SegmentKey key;
    uint64_t token = 0;
    uint64_t offset = 0;
    Buffer bytes;
    uint64_t checksum = 0;
    std::vector<uint64_t> frame_checksums;  // of each kMaxFramePayload bytes
    Status refused;                         // found bad before it was queued
    std::function<void(Result<SegmentInfo>)> done;
  };
  // What a batch does to one segment. `length`, `token`, `end` are as they will be once it is synced.
  struct Work {
    SegmentPtr segment;
    std::shared_ptr<File> file;
    SegmentState state = SegmentState::kOpen;  // as the batch met it
    bool broken = false;
    bool failed = false;
    bool created = false;
    bool wrote = false;
    bool sealing = false;
    uint64_t length = 0;
    uint64_t token = 0;
    std::string bytes;  // goes to segment->file_end
    FrameIndex frames;
    std::vector<Request> writers;  // answered when synced
    std::vector<Request> seals;
    uint64_t end(uint64_t file_end) const { return file_end + bytes.size(); }
  };
  using Batch = std::map<SegmentKey, Work>;
  struct Answer {
    Request request;
    Result<SegmentInfo> result;
  };
  struct PendingUpload {
    BootTime not_before;
    absl::Duration backoff;
  };

  // --- data_server.cc
  std::string SegmentsDir() const { return JoinPath(config_.dir, "segments"); }
  std::string SegmentPath(SegmentKey key) const { return JoinPath(SegmentsDir(), SegmentName(key) + ".seg"); }
  std::string StatePath(SegmentKey key) const { return JoinPath(SegmentsDir(), SegmentName(key) + ".state"); }
  static SegmentInfo InfoOf(const Segment& segment);
  SegmentPtr FindVisible(SegmentKey key) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Enqueue(Request request);
  Result<SegmentInfo> EnqueueAndWait(const OpContext& ctx, Request request);
  static Status Admit(const Request& request);
  Status RemoveFilesOf(SegmentKey key);
  void Count(const char* name, uint64_t n = 1);  // takes mu_
  void Forget(const SegmentPtr& segment) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // --- sync_loop.cc
  void SyncLoop();
  void RunBatch(std::deque<Request> requests);
  void Decide(Request request, uint64_t* space, Batch* batch, std::vector<Answer>* answers);
  Work* WorkFor(const Request& request, Batch* batch, Status* refused);
  void DecideAppend(Request request, Work* work, uint64_t* space, std::vector<Answer>* answers);
  void DecideFence(Request request, Work* work, std::vector<Answer>* answers);
  void DecideSeal(Request request, Work* work, std::vector<Answer>* answers);
  bool IsRepeat(const Request& request, const Work& work);
  void LayOut(const Request& request, Work* work);
  Status WriteWork(Work* work);
  bool UndoWrite(Work* work);
  bool RemoveNewFile(SegmentKey key);
  Status SyncWork(Work* work);
  void Publish(Work* work);
  void BreakSegment(Work* work, const Error& why);
  bool RecordBroken(const SegmentPtr& segment);
  void SealWork(Work* work);
  Status WriteSeal(Work* work);
  static void AnswerAll(std::vector<Request> requests, const Result<SegmentInfo>& result);
  void FinishWork(Work* work, const Status& status);

  // --- read_path.cc
  // `piece` reads a range of the file or object. Verifies every frame against its checksums and the index.
  using RangeReader = std::function<Result<std::string>(uint64_t position, uint64_t length)>;
  static Result<std::string> ReadFrames(SegmentKey key, const FrameIndex& frames, uint64_t offset, uint64_t length,
                                        const RangeReader& piece);
  static FrameIndex FramesOf(const FrameIndex& frames, uint64_t offset, uint64_t length);
  Result<std::string> ReadLocal(const SegmentPtr& segment, uint64_t offset, uint64_t length);
  Result<std::string> ReadObject(const OpContext& ctx, const SegmentPtr& segment, uint64_t offset, uint64_t length);
  Result<std::shared_ptr<const OpenSegment>> OpenLocal(const SegmentPtr& segment);
  Result<std::shared_ptr<const FrameIndex>> LoadIndex(SegmentKey key, uint64_t file_size, const RangeReader& piece);
  Result<std::shared_ptr<const FrameIndex>> ObjectIndex(const OpContext& ctx, const SegmentPtr& segment);
  void DropBadCopy(const SegmentPtr& segment);

  // --- upload.cc
  void UploadLoop();
  void QueueUpload(SegmentKey key) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  SegmentPtr NextUpload() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Status Upload(const SegmentPtr& segment);
  Status VerifyLocal(const SegmentPtr& segment);
  Status Rebuild(const SegmentPtr& segment);
  void AddCached(const SegmentPtr& segment) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void RemoveCached(const SegmentPtr& segment) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Evict();

  // --- recovery.cc
  Status Recover();
  Status RecoverDisk(DiskId disk, const std::string& dir);
  Status RecoverSegment(SegmentKey key, bool has_file, bool has_state);
  Status RecoverFrom(const SegmentPtr& segment, bool has_file, bool has_state, bool* drop);
  Status RecoverUploaded(const SegmentPtr& segment, const StateRecord& record, bool has_file);
  Status RecoverFile(const SegmentPtr& segment, const StateRecord* broken, bool* drop);
  Status RecoverFrames(const SegmentPtr& segment, const StateRecord* broken, File& file, uint64_t size, bool* drop);
  Status FinishSeal(const SegmentPtr& segment, File& file);
  Status RecoverLostRecord(const SegmentPtr& segment);

  const DataServerEnv env_;
  const DataServerConfig config_;
  std::unique_ptr<File> dir_lock_;
  std::unique_ptr<Thread> syncer_;
  std::unique_ptr<Thread> uploader_;

  Mutex mu_;
  CondVar queue_cv_;   // queue_ or stopping_ changed
  CondVar upload_cv_;  // uploads_ or stopping_ changed
  CondVar idle_cv_;    // a segment left a batch or an upload
  std::map<SegmentKey, SegmentPtr> segments_ ABSL_GUARDED_BY(mu_);
  std::deque<Request> queue_ ABSL_GUARDED_BY(mu_);
  uint64_t queued_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<SegmentKey, PendingUpload> uploads_ ABSL_GUARDED_BY(mu_);  // sealed, not uploaded, not damaged
  OpenCache open_ ABSL_GUARDED_BY(mu_);
  std::list<SegmentKey> cached_ ABSL_GUARDED_BY(mu_);  // uploaded and local, least recently used first
  uint64_t cached_bytes_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<std::string, uint64_t> counters_ ABSL_GUARDED_BY(mu_);
  bool started_ ABSL_GUARDED_BY(mu_) = false;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  bool joined_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace archil
