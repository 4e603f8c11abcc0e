#include "tests/support/sample_lost_log.h"

#include "tests/support/sample_ops.h"

namespace archil {

LostLog SampleLostLog() {
  LostLog log;
  log.disk = "photos";
  log.branch = "main";
  log.client_name = "host:77:/mnt";
  log.reason = "silent past its lease; inode 4096 was wanted by another";
  log.session = SessionId{0x1f};
  log.when = {1'767'225'600, 123'456'789};
  log.root = InodeId{1};
  log.names[InodeId{2}] = {InodeId{1}, "dir"};
  log.names[InodeId{4099}] = {InodeId{1}, "empty"};
  log.names[InodeId{4100}] = {InodeId{1}, "from"};
  log.names[InodeId{4101}] = {InodeId{2}, "to"};
  log.ops = SampleOps();
  return log;
}

}  // namespace archil
