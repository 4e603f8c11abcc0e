#include "server/meta/log/log_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "common/base/checksum.h"

namespace archil {
namespace {

constexpr int kAttemptsPerSegment = 5;
constexpr int kSegmentsTried = 3;
constexpr absl::Duration kAppendDeadline = absl::Seconds(10);

bool WorthRetrying(Code code) {
  return code == Code::kCorrupt || BandOf(code) == Band::kNotApplied || BandOf(code) == Band::kUnknown;
}

// The server cannot take it; another one may.
bool WorthMoving(Code code) { return WorthRetrying(code) || code == Code::kNoSpace || code == Code::kIo; }

}  // namespace

Result<uint32_t> PickLogServer(DataServerSet& data, uint64_t turn, uint32_t avoid) {
  const std::vector<DataServerInfo> all = data.All();
  if (all.empty()) return Error(Code::kUnavailable, "no data server is known: start one and name it to the metadata server");
  for (size_t i = 0; i < all.size(); ++i) {
    const uint32_t id = all[(turn + i) % all.size()].id;
    if (id != avoid) return id;
  }
  return all[0].id;
}

LogWriter::LogWriter(const LogWriterEnv& env, DiskId disk, ManifestStore store, Manifest manifest, Lsn durable, uint64_t segment_bytes, Hooks hooks)
    : env_(env),
      disk_(disk),
      segment_bytes_(std::min(segment_bytes, kMaxSegment)),
      hooks_(std::move(hooks)),
      store_(std::move(store)),
      manifest_(std::move(manifest)),
      placed_(manifest_.next_segment),
      mu_(env.scheduler),
      cv_(env.scheduler),
      submitted_(durable),
      durable_(durable) {}

LogWriter::~LogWriter() { Stop(); }

void LogWriter::Submit(Lsn lsn, std::string frame, Done done) {
  Error error(Code::kUnavailable);
  {
    MutexLock lock(mu_);
    if (failed_ == nullptr && !stopping_) {
      submitted_ = lsn;
      submitted_bytes_ += frame.size();
      ++stats_.records;
      stats_.bytes += frame.size();
      queue_.push_back({lsn, std::move(frame), std::move(done)});
      StartPump();
      return;
    }
    if (failed_ != nullptr) error = *failed_;
  }
  done(error);
}

void LogWriter::WhenDurable(Done done) {
  Status answer = Ok();
  {
    MutexLock lock(mu_);
    if (failed_ != nullptr) {
      answer = *failed_;
    } else if (submitted_ > durable_ && stopping_) {
      answer = Error(Code::kUnavailable);
    } else if (submitted_ > durable_) {
      queue_.push_back({submitted_, std::string(), std::move(done)});
      StartPump();
      return;
    }
  }
  done(answer);
}

Lsn LogWriter::durable() {
  MutexLock lock(mu_);
  return durable_;
}

LogWriterStats LogWriter::stats() {
  MutexLock lock(mu_);
  return stats_;
}

uint64_t LogWriter::TakeSubmittedBytes() {
  MutexLock lock(mu_);
  return std::exchange(submitted_bytes_, 0);
}

void LogWriter::Stop() {
  std::deque<Item> dropped;
  {
    MutexLock lock(mu_);
    stopping_ = true;
    cv_.SignalAll();
    while (pumping_) cv_.Wait(mu_);
    dropped.swap(queue_);
    if (failed_ == nullptr && !dropped.empty()) failed_ = std::make_shared<const Error>(Code::kUnavailable, "the log was closed");
  }
  for (Item& item : dropped) item.done(Error(Code::kUnavailable, "the log was closed"));
}

void LogWriter::StartPump() {
  if (pumping_) return;
  pumping_ = env_.pool.Post([this] { Pump(); });
}

// What one append carries: whole records, about one maximal append, never more than fits a segment.
std::vector<LogWriter::Item> LogWriter::TakeBatch() {
  std::vector<Item> batch;
  size_t bytes = 0;
  MutexLock lock(mu_);
  const size_t limit = std::min<size_t>(kMaxAppend, segment_bytes_);
  while (!queue_.empty() && !stopping_ && (bytes == 0 || bytes + queue_.front().frame.size() <= limit)) {
    bytes += queue_.front().frame.size();
    batch.push_back(std::move(queue_.front()));
    queue_.pop_front();
  }
  if (batch.empty()) {
    pumping_ = false;
    cv_.SignalAll();
  }
  return batch;
}

void LogWriter::Pump() {
  for (;;) {
    std::vector<Item> batch = TakeBatch();
    if (batch.empty()) return;
    std::string bytes;
    Lsn first, last;
    for (Item& item : batch) {
      if (item.frame.empty()) continue;
      if (!first) first = item.lsn;
      last = item.lsn;
      if (bytes.empty()) {
        bytes = std::move(item.frame);
      } else {
        bytes += item.frame;
      }
    }
    if (!bytes.empty()) {
      if (const Status s = AppendAll(bytes, first); !s.ok()) {
        Fail(s.error(), std::move(batch));
        return;
      }
      MutexLock lock(mu_);
      durable_ = last;
      ++stats_.appends;
    }
    for (Item& item : batch) item.done(Ok());
  }
}

void LogWriter::Fail(const Error& error, std::vector<Item> batch) {
  const Error answer(Code::kUnavailable, fmt::format("the log cannot be extended: {}", error.ToString()));
  std::deque<Item> waiting;
  {
    MutexLock lock(mu_);
    failed_ = std::make_shared<const Error>(answer);
    waiting.swap(queue_);
  }
  for (Item& item : batch) item.done(answer);
  for (Item& item : waiting) item.done(answer);
  hooks_.on_failed(answer);
  MutexLock lock(mu_);
  pumping_ = false;
  cv_.SignalAll();
}

Status LogWriter::Backoff(int attempt) {
  const BootTime until = env_.scheduler.clock().Boot() + absl::Milliseconds(10) * (1 << attempt);
  MutexLock lock(mu_);
  while (!stopping_) {
    if (cv_.WaitUntil(mu_, until)) return Ok();
  }
  return Error(Code::kUnavailable, "the log is being closed");
}

// Appends to the open segment, retrying what may be retried: the same bytes at the same offset are no second append.
Status LogWriter::AppendHere(const std::string& bytes) {
  const LogSegment& segment = manifest_.segments.back();
  DataService* server = env_.data.ById(segment.servers[0]);
  if (server == nullptr) return Error(Code::kUnavailable, fmt::format("data server {} is not known", segment.servers[0]));
  const auto block = std::make_shared<const std::string>(bytes);
  for (size_t done = 0; done < bytes.size();) {
    const Buffer piece(block, done, std::min(bytes.size() - done, kMaxAppend));
    Status s = Ok();
    for (int attempt = 0; attempt < kAttemptsPerSegment; ++attempt) {
      OpContext ctx;
      ctx.deadline = env_.scheduler.clock().Boot() + kAppendDeadline;
      s = env_.faults.Hit("meta.log.append");
      if (s.ok()) s = server->Append(ctx, {disk_, segment.segment}, manifest_.epoch, length_ + done, piece, Checksum(piece.view()));
      if (s.ok() || !WorthRetrying(s.code())) break;
      ARCHIL_RETURN_IF_ERROR(Backoff(attempt));
    }
    ARCHIL_RETURN_IF_ERROR(s);
    done += piece.size();
  }
  length_ += bytes.size();
  return Ok();
}

Status LogWriter::AppendAll(const std::string& bytes, Lsn first) {
  if (length_ > 0 && length_ + bytes.size() > segment_bytes_) ARCHIL_RETURN_IF_ERROR(Rotate(first));
  Status s = Ok();
  for (int tried = 0; tried < kSegmentsTried; ++tried) {
    s = AppendHere(bytes);
    if (s.ok() || !WorthMoving(s.code()) || tried + 1 == kSegmentsTried) return s;
    ARCHIL_RETURN_IF_ERROR(Rotate(first));
  }
  return s;
}

// Closes the segment at the length of its whole durable records; what an unanswered append left behind that is not of
// the log any more. One transaction, so there is never a moment with two open ends.
Status LogWriter::Rotate(Lsn first) {
  ARCHIL_RETURN_IF_ERROR(env_.faults.Hit("meta.log.rotate"));
  LogSegment closed = manifest_.segments.back();
  ARCHIL_ASSIGN_OR_RETURN(const uint32_t server, PickLogServer(env_.data, ++placed_, closed.servers[0]));
  closed.closed = true;
  closed.end = length_;
  Manifest next = manifest_;
  next.segments.pop_back();
  if (closed.end > 0) next.segments.push_back(closed);
  next.segments.push_back({SegmentId{kLogSegmentBit | next.next_segment++}, first, false, 0, {server}});
  ARCHIL_RETURN_IF_ERROR(store_.Store(next));
  manifest_ = std::move(next);
  length_ = 0;
  hooks_.on_closed(closed);
  MutexLock lock(mu_);
  ++stats_.rotations;
  return Ok();
}

}  // namespace archil
