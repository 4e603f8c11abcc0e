// Ops on the state: extents against a naive model, the rules of names and links, hostile batches, and replay.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/format/op_codec.h"
#include "server/meta/apply.h"
#include "server/meta/ops/extents.h"
#include "tests/support/meta_world.h"

namespace archil {
namespace {

using Dump = std::map<std::string, std::string>;

Dump DumpOf(KvView& kv) {
  Dump out;
  EXPECT_TRUE(kv.Scan("", "", [&](std::string_view key, std::string_view value) {
                  out[std::string(key)] = std::string(value);
                  return true;
                }).ok());
  return out;
}

// A state with a session of its own, changed by records of a log that is kept.
class Bench {
 public:
  static constexpr SessionId kSession{77};
  Bench() {
    EXPECT_TRUE(Apply(DiskCreatedRecord{DiskId{1}, "d", {1, 0}, 0}).ok());
    EXPECT_TRUE(Apply(SessionOpenedRecord{kSession, {1, 2}, kMainBranch, SessionMode::kReadWrite, "c", {1, 0}, 1000}).ok());
    EXPECT_TRUE(Apply(RangeGrantedRecord{kSession, 1}).ok());
    EXPECT_TRUE(Apply(SegmentsGrantedRecord{kSession, {{SegmentId{1}, 1, {1}}, {SegmentId{2}, 1, {1}}}}).ok());
  }
  Status Apply(const LogRecord& record) {
    Txn txn(*kv_);
    ARCHIL_RETURN_IF_ERROR(ApplyRecord(txn, record));
    ARCHIL_ASSIGN_OR_RETURN(const KvBatch batch, txn.Finish());
    ARCHIL_RETURN_IF_ERROR(kv_->Write(batch));
    log_.push_back(record);
    return Ok();
  }
  Status Commit(const std::vector<Op>& ops) {
    const Seq next{applied_ + 1};
    ARCHIL_RETURN_IF_ERROR(Apply(CommitRecord{kSession, next, next, EncodeOps(ops), {}}));
    ++applied_;
    return Ok();
  }
  InodeId New() { return InodeId{kInodeRange + next_++}; }
  Timestamp Now() { return {1000, ++clock_}; }
  CreateOp Create(InodeId parent, const std::string& name, FileType type = FileType::kRegular) {
    CreateOp op;
    op.parent = parent;
    op.name = name;
    op.ino = New();
    op.type = type;
    op.mode = 0755;
    if (type == FileType::kSymlink) op.target = "t";
    op.now = Now();
    return op;
  }
  RenameOp Rename(InodeId from, const std::string& name, InodeId to, const std::string& new_name, InodeId ino, InodeId victim = {},
                  RenameOp::Mode mode = RenameOp::Mode::kPlain) {
    RenameOp op{from, name, to, new_name, ino, victim, mode};
    op.now = Now();
    return op;
  }
  Records View() { return Records(*kv_, *LoadBranchChain(*kv_, kMainBranch)); }
  Attr AttrOf(InodeId ino) { return (*View().GetInode(ino))->attr; }
  bool Exists(InodeId ino) { return View().GetInode(ino)->has_value(); }
  KvStore& kv() { return *kv_; }
  const std::vector<LogRecord>& log() const { return log_; }

 private:
  std::unique_ptr<KvStore> kv_ = NewMemKvStore();
  std::vector<LogRecord> log_;
  uint64_t applied_ = 0;
  uint64_t next_ = 0;
  uint32_t clock_ = 0;
};

// Every promise that must hold of any state, checked by a scan that shares nothing with the ops.
void CheckInvariants(Bench& b) {
  const Records view = b.View();
  std::map<InodeId, InodeRecord> inodes;
  std::map<InodeId, uint64_t> names, dirs, links, allocated, bytes_records, bytes_used;
  const auto scan = [&](Table table, const RecordFn& fn) { EXPECT_TRUE(view.Scan(TablePrefix(table), "", fn).ok()); };
  scan(Table::kInode, [&](std::string_view key, std::string_view value) {
    auto rec = DecodeInode(value);
    EXPECT_TRUE(rec.ok());
    EXPECT_EQ(rec->attr.ino, InodeId{FirstIdOfKey(key)});
    inodes[rec->attr.ino] = *rec;
    return true;
  });
  scan(Table::kDentry, [&](std::string_view key, std::string_view value) {
    const auto d = *DecodeDentry(value);
    const InodeId parent{FirstIdOfKey(key)};
    EXPECT_TRUE(inodes.contains(parent));
    EXPECT_TRUE(inodes.contains(d.ino)) << "a name shows nothing";
    EXPECT_EQ(inodes[d.ino].attr.type, d.type);
    EXPECT_TRUE(view.Get(ParentKey(d.ino, parent, NameOfDentry(key)))->has_value());
    ++names[parent];
    ++links[d.ino];
    if (d.type == FileType::kDirectory) ++dirs[parent];
    return true;
  });
  uint64_t reverse = 0, forward = 0;
  scan(Table::kParent, [&](std::string_view, std::string_view) {
    ++reverse;
    return true;
  });
  for (const auto& [ino, n] : links) forward += n;
  EXPECT_EQ(reverse, forward);
  scan(Table::kChunk, [&](std::string_view key, std::string_view value) {
    auto chunk = DecodeChunk(value);
    EXPECT_TRUE(chunk.ok());
    const InodeId ino{FirstIdOfKey(key)};
    allocated[ino] += AllocatedBytes(chunk->extents);
    std::map<std::pair<uint64_t, uint64_t>, int> used;
    for (const StoredExtent& e : chunk->extents) {
      if (e.kind == ExtentKind::kInline) ++used[{e.bytes_offset, e.bytes_serial}];
    }
    if (!used.empty()) bytes_used[ino] += used.size();
    EXPECT_TRUE(view.GetExtents(ino, ChunkOfKey(key)).ok());
    return true;
  });
  scan(Table::kBytes, [&](std::string_view key, std::string_view) {
    ++bytes_records[InodeId{FirstIdOfKey(key)}];
    return true;
  });
  EXPECT_EQ(bytes_records, bytes_used) << "inline bytes without an extent, or the other way round";
  CountersRecord want;
  for (const auto& [ino, rec] : inodes) {
    ++want.inodes;
    want.bytes += rec.attr.allocated;
    EXPECT_EQ(rec.attr.allocated, allocated[ino]);
    if (rec.attr.type == FileType::kDirectory) {
      EXPECT_EQ(rec.attr.size, names[ino]);
      if (rec.attr.nlink > 0) {
        EXPECT_EQ(rec.attr.nlink, 2 + dirs[ino]);
      }
    } else {
      EXPECT_EQ(rec.attr.nlink, links[ino]);
    }
    const bool named = links[ino] > 0 || ino == kRootInode;
    EXPECT_EQ(!named, view.Get(OrphanKey(ino))->has_value());
  }
  for (const auto& [ino, n] : allocated) EXPECT_TRUE(inodes.contains(ino)) << "chunks of nothing";
  EXPECT_EQ(*view.GetCounters(), want);
}

TEST(OpsTest, ExtentsAgainstANaiveModel) {
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    auto random = SeededRandom(seed);
    Bench b;
    const CreateOp f = b.Create(kRootInode, "f");
    ASSERT_TRUE(b.Commit({f}).ok());
    // 0: hole, 1: zeros, others: value of the byte. Around a border of two chunks.
    constexpr uint64_t kBase = kChunkSize - 3000;
    constexpr uint64_t kSpan = 6000;
    std::vector<uint8_t> model(kSpan, 0);
    uint64_t size = 0;
    for (int step = 0; step < 250; ++step) {
      const uint64_t at = random->Below(kSpan - 1);
      const uint64_t length = 1 + random->Below(std::min<uint64_t>(kSpan - at, 900));
      const uint64_t kind = random->Below(7);
      const auto value = static_cast<uint8_t>(2 + random->Below(250));
      const auto fill = [&](uint8_t v) { std::fill(model.begin() + static_cast<long>(at), model.begin() + static_cast<long>(at + length), v); };
      std::vector<Op> ops;
      if (kind <= 2) {
        SetExtentsOp op;
        op.ino = f.ino;
        op.size = std::max(size, kBase + at + length);
        op.mtime = op.ctime = b.Now();
        Extent e;
        e.offset = kBase + at;
        e.length = length;
        if (kind == 0) {
          e.kind = ExtentKind::kInline;
          e.data = Buffer(std::string(length, static_cast<char>(value)));
          fill(value);
        } else if (kind == 1) {
          e.segment = SegmentId{1};
          e.segment_offset = at;  // contiguous places join
          fill(1);
          fill(255);
        } else {
          e.kind = ExtentKind::kZero;
          fill(1);
        }
        op.extents.push_back(e);
        size = op.size;
        ops.push_back(op);
      } else if (kind <= 5) {
        ClearRangeOp op;
        op.ino = f.ino;
        op.kind = static_cast<ClearRangeOp::Kind>(kind - 3);
        op.offset = kBase + at;
        op.length = length;
        op.size = size = std::max(size, kBase + at + length);
        op.now = b.Now();
        if (op.kind == ClearRangeOp::Kind::kPunch) fill(0);
        if (op.kind == ClearRangeOp::Kind::kZero) fill(1);
        if (op.kind == ClearRangeOp::Kind::kAllocate) {
          for (uint64_t i = at; i < at + length; ++i) model[i] = model[i] == 0 ? 1 : model[i];
        }
        ops.push_back(op);
      } else {
        SetAttrOp op;
        op.ino = f.ino;
        op.fields = SetAttrOp::kSize;
        op.size = size = kBase + at;
        op.now = b.Now();
        std::fill(model.begin() + static_cast<long>(at), model.end(), 0);
        ops.push_back(op);
      }
      ASSERT_TRUE(b.Commit(ops).ok()) << step;
      std::vector<uint8_t> got(kSpan, 0);
      for (uint64_t chunk = 0; chunk < 3; ++chunk) {
        const auto extents = b.View().GetExtents(f.ino, chunk);
        ASSERT_TRUE(extents.ok());
        for (const Extent& e : *extents) {
          for (uint64_t i = 0; i < e.length; ++i) {
            uint8_t v = 1;
            if (e.kind == ExtentKind::kInline) v = static_cast<uint8_t>(e.data.view()[i]);
            if (e.kind == ExtentKind::kSegment) {
              v = 255;
              ASSERT_EQ(e.segment_offset + i, e.offset + i - kBase);
            }
            got[e.offset + i - kBase] = v;
          }
        }
      }
      ASSERT_EQ(got, model) << step;
    }
    ASSERT_EQ(b.AttrOf(f.ino).size, size);
    CheckInvariants(b);
  }
}

TEST(OpsTest, RenamesKeepTheTreeATree) {
  Bench b;
  const CreateOp a = b.Create(kRootInode, "a", FileType::kDirectory);
  const CreateOp c = b.Create(a.ino, "c", FileType::kDirectory);
  const CreateOp d = b.Create(c.ino, "d", FileType::kDirectory);
  const CreateOp e = b.Create(kRootInode, "e", FileType::kDirectory);
  const CreateOp f = b.Create(kRootInode, "f");
  ASSERT_TRUE(b.Commit({a, c, d, e, f}).ok());
  EXPECT_EQ(b.Commit({b.Rename(kRootInode, "a", d.ino, "x", a.ino)}).code(), Code::kInvalid);
  EXPECT_EQ(b.Commit({b.Rename(kRootInode, "a", a.ino, "x", a.ino)}).code(), Code::kInvalid);
  EXPECT_EQ(b.Commit({b.Rename(kRootInode, "e", c.ino, "d", e.ino, d.ino), b.Rename(kRootInode, "a", e.ino, "x", a.ino)}).code(), Code::kInvalid);
  EXPECT_EQ(b.Commit({b.Rename(kRootInode, "a", c.ino, "d", a.ino, d.ino, RenameOp::Mode::kExchange)}).code(), Code::kInvalid);
  EXPECT_EQ(b.Commit({b.Rename(kRootInode, "f", kRootInode, "a", f.ino, a.ino)}).code(), Code::kInvalid);  // file over directory
  EXPECT_EQ(b.Commit({b.Rename(kRootInode, "e", kRootInode, "a", e.ino, a.ino)}).code(), Code::kInvalid);  // not empty
  EXPECT_EQ(b.Commit({b.Rename(kRootInode, "f", kRootInode, "g", f.ino, {}, RenameOp::Mode::kNoReplace),
                      b.Rename(kRootInode, "g", kRootInode, "e", f.ino, e.ino, RenameOp::Mode::kNoReplace)})
                .code(),
            Code::kInvalid);
  ASSERT_TRUE(b.Commit({b.Rename(kRootInode, "e", c.ino, "d", e.ino, d.ino)}).ok());  // over an empty directory
  EXPECT_FALSE(b.Exists(d.ino));
  EXPECT_EQ(b.AttrOf(kRootInode).nlink, 3u);
  EXPECT_EQ(b.AttrOf(c.ino).nlink, 3u);
  ASSERT_TRUE(b.Commit({b.Rename(kRootInode, "f", a.ino, "c", f.ino, c.ino, RenameOp::Mode::kExchange)}).ok());
  EXPECT_EQ(b.AttrOf(a.ino).nlink, 2u);
  EXPECT_EQ(b.AttrOf(kRootInode).nlink, 4u);
  EXPECT_EQ(*b.View().ParentOfDirectory(c.ino), kRootInode);
  CheckInvariants(b);
}

TEST(OpsTest, LinksAndTimes) {
  Bench b;
  const CreateOp f = b.Create(kRootInode, "f");
  const CreateOp dir = b.Create(kRootInode, "d", FileType::kDirectory);
  ASSERT_TRUE(b.Commit({f, dir, LinkOp{f.ino, dir.ino, "g", b.Now()}}).ok());
  EXPECT_EQ(b.AttrOf(f.ino).nlink, 2u);
  EXPECT_EQ(b.Commit({LinkOp{dir.ino, kRootInode, "h", b.Now()}}).code(), Code::kInvalid);
  EXPECT_EQ(b.Commit({RmdirOp{kRootInode, "d", dir.ino, false, b.Now()}}).code(), Code::kInvalid);
  EXPECT_EQ(b.Commit({UnlinkOp{kRootInode, "d", dir.ino, false, b.Now()}}).code(), Code::kInvalid);
  // Two names of one inode: nothing happens.
  const Attr before = b.AttrOf(f.ino);
  ASSERT_TRUE(b.Commit({b.Rename(kRootInode, "f", dir.ino, "g", f.ino, f.ino)}).ok());
  EXPECT_EQ(b.AttrOf(f.ino), before);
  // ctime never goes back, the change counter always grows.
  SetAttrOp chmod;
  chmod.ino = f.ino;
  chmod.fields = SetAttrOp::kMode;
  chmod.mode = 0600;
  chmod.now = {1, 0};
  ASSERT_TRUE(b.Commit({chmod}).ok());
  EXPECT_EQ(b.AttrOf(f.ino).ctime, before.ctime);
  EXPECT_EQ(b.AttrOf(f.ino).change, before.change + 1);
  ASSERT_TRUE(b.Commit({UnlinkOp{kRootInode, "f", f.ino, false, b.Now()}, UnlinkOp{dir.ino, "g", f.ino, false, b.Now()},
                        RmdirOp{kRootInode, "d", dir.ino, true, b.Now()}})
                  .ok());
  EXPECT_FALSE(b.Exists(f.ino));
  EXPECT_EQ(b.AttrOf(dir.ino).nlink, 0u);
  EXPECT_EQ(b.Commit({b.Create(dir.ino, "late")}).code(), Code::kInvalid);
  CheckInvariants(b);
  ASSERT_TRUE(b.Commit({ReleaseOrphanOp{dir.ino}}).ok());
  CheckInvariants(b);
}

// Ops as a client makes them: mostly allowed, sometimes not; of every kind.
class AnyOps {
 public:
  AnyOps(Bench& b, uint64_t seed) : b_(b), random_(SeededRandom(seed)) {}
  Op Next() {
    const InodeId dir = Dir(), ino = Any();
    const std::string name = Name(), other = Name();
    const InodeId shown = Shows(dir, name);
    switch (random_->Below(14)) {
      case 0:
      case 1: {
        CreateOp op = b_.Create(dir, name, random_->Below(3) == 0 ? FileType::kDirectory : static_cast<FileType>(1 + random_->Below(7)));
        if (op.type == FileType::kSymlink) op.target = "t";
        known_.push_back(op.ino);
        return op;
      }
      case 2: return LinkOp{ino, dir, name, b_.Now()};
      case 3: return UnlinkOp{dir, name, shown ? shown : ino, Flip(), b_.Now()};
      case 4: return RmdirOp{dir, name, shown ? shown : ino, Flip(), b_.Now()};
      case 5:
      case 6: {
        const InodeId to = Dir();
        const InodeId victim = Shows(to, other);
        return b_.Rename(dir, name, to, other, shown ? shown : ino, victim, static_cast<RenameOp::Mode>(random_->Below(8) == 0 ? 2 : random_->Below(2)));
      }
      case 7: {
        SetAttrOp op;
        op.ino = ino;
        op.fields = static_cast<uint32_t>(random_->Below(64));
        op.mode = static_cast<uint32_t>(random_->Below(010000));
        op.size = random_->Below(3 * kChunkSize);
        op.now = b_.Now();
        return op;
      }
      case 8:
      case 9: {
        SetExtentsOp op;
        op.ino = ino;
        op.mtime = op.ctime = b_.Now();
        uint64_t at = random_->Below(2 * kChunkSize);
        for (uint64_t n = 1 + random_->Below(3); n > 0; --n) {
          Extent e;
          e.offset = at;
          e.length = 1 + random_->Below(5000);
          e.kind = static_cast<ExtentKind>(1 + random_->Below(3));
          e.segment = SegmentId{random_->Below(20) == 0 ? 9 : 1 + random_->Below(2)};
          e.segment_offset = random_->Below(1000);
          if (e.kind == ExtentKind::kInline) e.data = Buffer(std::string(e.length, 'i'));
          at = e.end() + random_->Below(100);
          op.extents.push_back(std::move(e));
        }
        op.size = random_->Below(10) == 0 ? 0 : at;
        return op;
      }
      case 10: {
        ClearRangeOp op{ino, static_cast<ClearRangeOp::Kind>(random_->Below(3)), random_->Below(3 * kChunkSize), 1 + random_->Below(kChunkSize)};
        op.size = op.offset + op.length + 3 * kChunkSize;
        op.now = b_.Now();
        return op;
      }
      case 11: return SetXattrOp{ino, "user." + name, std::string(random_->Below(600), 'v'), b_.Now()};
      case 12: return RemoveXattrOp{ino, "user." + name, b_.Now()};
      default: return random_->Below(2) == 0 ? Op(ReleaseOrphanOp{ino}) : Op(TouchOp{ino, b_.Now(), b_.Now()});
    }
  }
  Random& random() { return *random_; }

 private:
  bool Flip() { return random_->Below(2) == 0; }
  std::string Name() { return std::string(1, static_cast<char>('a' + random_->Below(5))); }
  // Mostly one that exists.
  InodeId Any() {
    for (int i = 0; i < 30 && random_->Below(20) != 0; ++i) {
      const InodeId ino = known_[random_->Below(known_.size())];
      if (b_.Exists(ino)) return ino;
    }
    return known_[random_->Below(known_.size())];
  }
  InodeId Dir() {
    for (int i = 0; i < 6; ++i) {
      const InodeId ino = Any();
      if (b_.Exists(ino) && b_.AttrOf(ino).type == FileType::kDirectory) return ino;
    }
    return kRootInode;
  }
  InodeId Shows(InodeId dir, const std::string& name) {
    const auto d = b_.View().GetDentry(dir, name);
    return d.ok() && *d ? (*d)->ino : InodeId{0};
  }

  Bench& b_;
  std::unique_ptr<Random> random_;
  std::vector<InodeId> known_ = {kRootInode};
};

TEST(OpsTest, AnyBatchIsAppliedWholeOrNotAtAllAndEveryInvariantHolds) {
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Bench b;
    AnyOps any(b, seed);
    int applied = 0, refused = 0;
    Dump before = DumpOf(b.kv());
    for (int i = 0; i < 1500; ++i) {
      std::vector<Op> ops;
      for (uint64_t n = 1 + any.random().Below(3); n > 0; --n) ops.push_back(any.Next());
      const Status s = b.Commit(ops);
      Dump after = DumpOf(b.kv());
      if (s.ok()) {
        ++applied;
      } else {
        ++refused;
        ASSERT_EQ(s.code(), Code::kInvalid) << s.error().ToString();
        ASSERT_EQ(after, before);
      }
      before = std::move(after);
      if (i % 100 == 0) CheckInvariants(b);
      if (testing::Test::HasFailure()) return;
    }
    CheckInvariants(b);
    EXPECT_GE(applied, 100);
    EXPECT_GE(refused, 200);

    // The session ends: nothing of it is left but what has a name.
    ASSERT_TRUE(b.Apply(SessionEndedRecord{Bench::kSession, true, "test"}).ok());
    CheckInvariants(b);
    int orphans = 0;
    ASSERT_TRUE(b.View().Scan(OrphanPrefix(), "", [&](std::string_view, std::string_view) { return ++orphans > 0; }).ok());
    EXPECT_EQ(orphans, 0);

    // Replay: the same records, encoded and decoded, make the same state, byte by byte.
    auto kv = NewMemKvStore();
    for (size_t i = 0; i < b.log().size(); ++i) {
      const auto frame = DecodeLogFrame(EncodeLogRecord(Lsn{i + 1}, b.log()[i]));
      ASSERT_TRUE(frame.ok());
      Txn txn(*kv);
      ASSERT_TRUE(ApplyRecord(txn, frame->record).ok()) << i;
      ASSERT_TRUE(kv->Write(*txn.Finish()).ok());
    }
    EXPECT_EQ(DumpOf(*kv), DumpOf(b.kv()));
  }
}

TEST(OpsTest, MutatedBatchesNeverCrashAndNeverChangeWhatTheyAreRefusedFor) {
  Bench b;
  AnyOps any(b, 99);
  for (int i = 0; i < 100; ++i) (void)b.Commit({any.Next()});
  int decoded = 0;
  Dump before = DumpOf(b.kv());
  for (int i = 0; i < 6000; ++i) {
    std::string bytes = EncodeOps(std::vector<Op>{any.Next(), any.Next()});
    for (uint64_t n = 1 + any.random().Below(4); n > 0; --n) bytes[any.random().Below(bytes.size())] = static_cast<char>(any.random().Next());
    const auto ops = DecodeOps(bytes);
    if (!ops.ok()) continue;
    ++decoded;
    const Status s = b.Commit(*ops);
    if (s.ok()) {
      before = DumpOf(b.kv());
      continue;
    }
    ASSERT_EQ(s.code(), Code::kInvalid) << s.error().ToString();
    if (decoded % 10 == 0) {
      ASSERT_EQ(DumpOf(b.kv()), before);
    }
  }
  EXPECT_GE(decoded, 500);
  CheckInvariants(b);
}

class NobodyMayWrite final : public RightsCheck {
 public:
  bool MayWrite(InodeId ino) override { return ino != kRootInode; }
};

// DLG-2
TEST(OpsTest, WithoutTheRightNothingIsChanged) {
  Bench b;
  const CreateOp f = b.Create(kRootInode, "f");
  ASSERT_TRUE(b.Commit({f}).ok());
  NobodyMayWrite rights;
  const std::vector<Op> all = {b.Create(kRootInode, "g"), LinkOp{f.ino, kRootInode, "h", b.Now()}, UnlinkOp{kRootInode, "f", f.ino, false, b.Now()},
                               b.Rename(kRootInode, "f", kRootInode, "h", f.ino), TouchOp{kRootInode, b.Now(), b.Now()}};
  for (const Op& op : all) {
    Txn txn(b.kv());
    const Status s = ApplyCommit(txn, Bench::kSession, Seq{2}, Seq{2}, {op}, &rights, nullptr);
    EXPECT_EQ(s.code(), Code::kInvalid);
    EXPECT_NE(s.error().message().find("DLG-2"), std::string_view::npos);
  }
}

TEST(OpsTest, NumbersSegmentsAndSpansAreTheSessionsOwn) {
  Bench b;
  ASSERT_TRUE(b.Apply(SessionOpenedRecord{SessionId{78}, {3, 4}, kMainBranch, SessionMode::kReadWrite, "o", {1, 0}, 1000}).ok());
  ASSERT_TRUE(b.Apply(RangeGrantedRecord{SessionId{78}, 2}).ok());
  ASSERT_TRUE(b.Apply(SegmentsGrantedRecord{SessionId{78}, {{SegmentId{3}, 1, {1}}}}).ok());
  CreateOp foreign = b.Create(kRootInode, "x");
  foreign.ino = InodeId{2 * kInodeRange};
  EXPECT_EQ(b.Commit({foreign}).code(), Code::kInvalid);
  const CreateOp f = b.Create(kRootInode, "f");
  ASSERT_TRUE(b.Commit({f}).ok());
  SetExtentsOp op;
  op.ino = f.ino;
  op.size = 10;
  op.extents.resize(1);
  op.extents[0].length = 10;
  op.extents[0].segment = SegmentId{3};
  EXPECT_EQ(b.Commit({op}).code(), Code::kInvalid);  // another session's
  op.extents[0].segment = SegmentId{1};
  op.extents[0].segment_offset = kMaxSegment - 5;
  EXPECT_EQ(b.Commit({op}).code(), Code::kInvalid);  // outside
  op.extents[0].segment_offset = kMaxSegment - 10;
  EXPECT_TRUE(b.Commit({op}).ok());
  ASSERT_TRUE(b.Apply(SegmentsCondemnedRecord{{SegmentId{2}}}).ok());
  op.extents[0].segment = SegmentId{2};
  EXPECT_EQ(b.Commit({op}).code(), Code::kInvalid);  // condemned
  ClearRangeOp huge{f.ino, ClearRangeOp::Kind::kZero, 0, kMaxZeroSpan + 1, kMaxZeroSpan + 1};
  EXPECT_EQ(b.Commit({huge}).code(), Code::kInvalid);
  CheckInvariants(b);
}

}  // namespace
}  // namespace archil
