// ScratchDir: a directory of a test's own, below where the machine keeps temporary files (TEST_TMPDIR); gone with the object.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <string>

#include "common/env/files.h"

namespace archil::test {

class ScratchDir {
 public:
  explicit ScratchDir(const std::string& below = testing::TempDir()) {
    path_ = below + (below.ends_with('/') ? "" : "/") + "archil-test-XXXXXX";
    EXPECT_NE(mkdtemp(path_.data()), nullptr) << path_;
  }
  ~ScratchDir() { EXPECT_TRUE(RealFiles().RemoveTree(path_).ok()) << path_; }
  ScratchDir(const ScratchDir&) = delete;
  ScratchDir& operator=(const ScratchDir&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace archil::test
