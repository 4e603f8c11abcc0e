// KvStore on RocksDB. Its own WAL is off: our log is the log. Nothing is written to disk before Flush says so (the state must
// never be ahead of the durable log), so the memtable is larger than anything we let grow between two flushes.
#include <rocksdb/cache.h>
#include <rocksdb/convenience.h>
#include <rocksdb/db.h>
#include <rocksdb/filter_policy.h>
#include <rocksdb/options.h>
#include <rocksdb/slice_transform.h>
#include <rocksdb/table.h>
#include <rocksdb/write_batch.h>

#include <utility>

#include "server/meta/store/keys.h"
#include "server/meta/store/kv_store.h"

namespace archil {
namespace {

constexpr size_t kBlockCacheBytes = 256ULL << 20;
// Never reached: the strand flushes long before (disk.cc, kFlushStateBytes).
constexpr size_t kMemtableBytes = 2ULL << 30;

rocksdb::Slice SliceOf(std::string_view v) { return {v.data(), v.size()}; }
std::string_view ViewOf(const rocksdb::Slice& s) { return {s.data(), s.size()}; }

Error ToError(const rocksdb::Status& s, std::string_view what) {
  Code code = Code::kIo;
  if (s.IsCorruption()) code = Code::kCorrupt;
  if (s.IsNoSpace()) code = Code::kNoSpace;
  return Error(code, std::string(what) + ": " + s.ToString());
}

// One cache for the disks of a process, so that its size is bounded whatever their number.
std::shared_ptr<rocksdb::Cache> SharedCache() {
  static const std::shared_ptr<rocksdb::Cache> cache = rocksdb::NewLRUCache(kBlockCacheBytes);
  return cache;
}

rocksdb::Options MakeOptions() {
  rocksdb::Options options;
  options.create_if_missing = true;
  options.write_buffer_size = kMemtableBytes;
  options.arena_block_size = 1 << 20;
  options.max_write_buffer_number = 4;
  options.min_write_buffer_number_to_merge = 1;
  options.avoid_flush_during_shutdown = true;
  options.max_background_jobs = 2;
  options.compression = rocksdb::kLZ4Compression;
  options.max_open_files = 500;
  options.keep_log_file_num = 2;
  options.max_log_file_size = 4 << 20;
  options.stats_dump_period_sec = 0;
  options.level_compaction_dynamic_level_bytes = true;
  options.target_file_size_base = 32ULL << 20;
  options.paranoid_checks = true;
  rocksdb::BlockBasedTableOptions table;
  table.block_cache = SharedCache();
  table.cache_index_and_filter_blocks = true;
  table.pin_l0_filter_and_index_blocks_in_cache = true;
  table.filter_policy.reset(rocksdb::NewBloomFilterPolicy(10, false));
  table.format_version = 5;
  options.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
  return options;
}

Result<std::optional<std::string>> GetFrom(rocksdb::DB& db, const rocksdb::ReadOptions& options, std::string_view key) {
  std::string value;
  const rocksdb::Status s = db.Get(options, SliceOf(key), &value);
  if (s.IsNotFound()) return std::optional<std::string>();
  if (!s.ok()) return ToError(s, "read of the state");
  return std::optional<std::string>(std::move(value));
}

Status ScanFrom(rocksdb::DB& db, rocksdb::ReadOptions options, std::string_view begin, std::string_view end,
                const std::function<bool(std::string_view, std::string_view)>& fn) {
  const rocksdb::Slice upper = SliceOf(end);
  if (!end.empty()) options.iterate_upper_bound = &upper;
  const std::unique_ptr<rocksdb::Iterator> it(db.NewIterator(options));
  for (it->Seek(SliceOf(begin)); it->Valid(); it->Next()) {
    if (!fn(ViewOf(it->key()), ViewOf(it->value()))) break;
  }
  if (!it->status().ok()) return ToError(it->status(), "scan of the state");
  return Ok();
}

class RocksView final : public KvView {
 public:
  explicit RocksView(rocksdb::DB& db) : db_(db), snapshot_(db.GetSnapshot()) { options_.snapshot = snapshot_; }
  ~RocksView() override { db_.ReleaseSnapshot(snapshot_); }
  Result<std::optional<std::string>> Get(std::string_view key) override { return GetFrom(db_, options_, key); }
  Status Scan(std::string_view begin, std::string_view end,
              const std::function<bool(std::string_view, std::string_view)>& fn) override {
    rocksdb::ReadOptions options = options_;
    options.fill_cache = false;  // long scans would push out what the strand needs
    return ScanFrom(db_, options, begin, end, fn);
  }

 private:
  rocksdb::DB& db_;
  const rocksdb::Snapshot* const snapshot_;
  rocksdb::ReadOptions options_;
};

class RocksKvStore final : public KvStore {
 public:
  explicit RocksKvStore(std::unique_ptr<rocksdb::DB> db) : db_(std::move(db)) {}
  ~RocksKvStore() override {
    rocksdb::CancelAllBackgroundWork(db_.get(), /*wait=*/true);
    (void)db_->Close();
  }

  Result<std::optional<std::string>> Get(std::string_view key) override { return GetFrom(*db_, {}, key); }
  Status Scan(std::string_view begin, std::string_view end,
              const std::function<bool(std::string_view, std::string_view)>& fn) override {
    return ScanFrom(*db_, {}, begin, end, fn);
  }

  Status Write(const KvBatch& batch) override {
    rocksdb::WriteBatch out;
    for (const auto& [begin, end] : batch.delete_ranges) {
      if (begin >= end) continue;
      if (const auto s = out.DeleteRange(SliceOf(begin), SliceOf(end)); !s.ok()) return ToError(s, "write of the state");
    }
    for (const auto& e : batch.entries) {
      const auto s = e.value ? out.Put(e.key, *e.value) : out.Delete(e.key);
      if (!s.ok()) return ToError(s, "write of the state");
    }
    rocksdb::WriteOptions options;
    options.disableWAL = true;
    if (const auto s = db_->Write(options, &out); !s.ok()) return ToError(s, "write of the state");
    return Ok();
  }

  std::unique_ptr<KvView> Snapshot() override { return std::make_unique<RocksView>(*db_); }

  Status Flush() override {
    rocksdb::FlushOptions options;
    options.wait = true;
    options.allow_write_stall = true;
    if (const auto s = db_->Flush(options); !s.ok()) return ToError(s, "flush of the state");
    return Ok();
  }

  uint64_t UnflushedBytes() override {
    uint64_t bytes = 0;
    if (!db_->GetIntProperty(rocksdb::DB::Properties::kCurSizeAllMemTables, &bytes)) return 0;
    return bytes;
  }

 private:
  const std::unique_ptr<rocksdb::DB> db_;
};

}  // namespace

Result<std::unique_ptr<KvStore>> OpenRocksKvStore(const std::string& dir) {
  rocksdb::DB* db = nullptr;
  const rocksdb::Status s = rocksdb::DB::Open(MakeOptions(), dir, &db);
  if (!s.ok()) {
    // RocksDB tells a held lock as an I/O error.
    if (s.IsIOError() && s.ToString().find("lock") != std::string::npos) {
      return Error(Code::kBusy, dir + " is open in another process");
    }
    return ToError(s, "opening the state in " + dir);
  }
  return std::unique_ptr<KvStore>(new RocksKvStore(std::unique_ptr<rocksdb::DB>(db)));
}

}  // namespace archil
