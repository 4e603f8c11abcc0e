// The contract of MetaService for the server in the same process.
#include "tests/contract/meta_lock_contract.h"
#include "tests/contract/meta_delegation_contract.h"
#include "tests/contract/meta_server_op_contract.h"
#include "tests/contract/meta_service_contract.h"

namespace archil {
namespace {

class InProcess final : public MetaServiceFixture {
 public:
  InProcess() { EXPECT_TRUE(world_.Start().ok()); }
  MetaService& service() override { return world_.meta(); }

 private:
  test::MetaWorld world_;
};

INSTANTIATE_TEST_SUITE_P(InProcess, MetaServiceContract,
                         ::testing::Values(MetaServiceFactory{"memory", [] { return std::make_unique<InProcess>(); }}));
INSTANTIATE_TEST_SUITE_P(InProcess, MetaLockContract,
                         ::testing::Values(MetaServiceFactory{"memory", [] { return std::make_unique<InProcess>(); }}));
INSTANTIATE_TEST_SUITE_P(InProcess, MetaDelegationContract,
                         ::testing::Values(MetaServiceFactory{"memory", [] { return std::make_unique<InProcess>(); }}));
INSTANTIATE_TEST_SUITE_P(InProcess, MetaServerOpContract,
                         ::testing::Values(MetaServiceFactory{"memory", [] { return std::make_unique<InProcess>(); }}));

}  // namespace
}  // namespace archil
