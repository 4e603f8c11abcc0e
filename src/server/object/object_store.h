// ObjectStore: the shape of S3 and nothing more: whole puts, ranged gets, list, delete; no rename, no append.
// Keys are 1..512 bytes of [A-Za-z0-9._/-], without empty, "." or ".." parts, each part at most 250. Blocking; thread safe.
//
// Durability: a key that Put returned success for survives; a reader sees a whole object or none.
// Errors: kNotFound, kInvalid (key or range), kUnavailable (retry), kNoSpace, kCorrupt (what came back is not
// what was stored), kIo.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/api/context.h"
#include "common/base/bytes.h"
#include "common/base/result.h"
#include "common/env/files.h"

namespace archil {

struct ObjectInfo {
  std::string key;
  uint64_t size = 0;
};

struct ObjectPage {
  std::vector<ObjectInfo> objects;  // in key order (bytes)
  bool complete = false;
};

class ObjectStore {
 public:
  virtual ~ObjectStore() = default;
  // Replaces an existing object.
  virtual Status Put(const OpContext& ctx, const std::string& key, const Buffer& bytes) = 0;
  // The content of a local file that nobody will change any more; a store on the same file system may link it.
  virtual Status PutFile(const OpContext& ctx, const std::string& key, const std::string& path) = 0;
  // Exactly [offset, offset + length); kInvalid if the object is shorter.
  virtual Result<Buffer> Get(const OpContext& ctx, const std::string& key, uint64_t offset, uint64_t length) = 0;
  virtual Result<ObjectInfo> Head(const OpContext& ctx, const std::string& key) = 0;
  // Keys with the prefix, after `after` (exclusive), at most `limit`.
  virtual Result<ObjectPage> List(const OpContext& ctx, const std::string& prefix, const std::string& after, uint32_t limit) = 0;
  // Absent is success.
  virtual Status Delete(const OpContext& ctx, const std::string& key) = 0;
};

// Objects as files below `root` (made if absent).
Result<std::unique_ptr<ObjectStore>> OpenLocalObjectStore(Files& files, const std::string& root);

}  // namespace archil
