#include "client/core/mount.h"

#include <utility>

#include "client/cache/block_cache.h"
#include "client/read/segment_reader.h"
#include "client/session/session.h"
#include "client/vfs/state.h"
#include "client/vfs/vfs.h"
#include "client/writeback/writeback.h"

namespace archil {
namespace {

class MountImpl final : public Mount {
 public:
  MountImpl(const MountEnv& env, const MountConfig& config)
      : env_(env),
        config_(config),
        state_(env.scheduler),
        session_(env, config),
        cache_(env.scheduler, config.cache_bytes),
        reader_(env, session_, cache_),
        writeback_(env, config, state_, session_, reader_),
        vfs_(env, config, session_, cache_, reader_, writeback_) {}

  ~MountImpl() override { Abandon(); }

  Status Start(const OpContext& ctx) {
    ARCHIL_RETURN_IF_ERROR(session_.Open(ctx));
    vfs_.SessionOpened();
    session_.Start({[this](Session::State state) { vfs_.SessionChanged(state); },
                    [this](const SessionMessage& message) { vfs_.OnMessage(message); },
                    [this] { return vfs_.HeldForReclaim(); }, [this](uint64_t number) { vfs_.Reclaimed(number); },
                    [this] { vfs_.BeforeBeat(); }, [this](const OpContext& ctx) { vfs_.AfterBeat(ctx); }, [this] { return vfs_.progress(); },
                    [this](const RenewReply& reply) { return vfs_.TakenAway(reply); },
                    [this](const OpContext& ctx, SettleRequest& request) { return vfs_.BeforeSettle(ctx, request); }});
    writeback_.OnRefused([this](const std::string& reason) { vfs_.LoseEverything(reason); });
    writeback_.Start();
    const Status root = vfs_.OpenRoot(ctx);
    if (!root.ok()) (void)Close(ctx);
    return root;
  }

  FsApi& fs() override { return vfs_; }
  SessionId session() const override { return session_.id(); }
  SessionKey session_key() const override { return session_.key(); }
  std::vector<HeldRight> Believed() override { return vfs_.Believed(); }
  void SetKernelCache(KernelCache* cache) override { vfs_.SetKernelCache(cache); }

  Result<SyncReport> Close(const OpContext& ctx) override {
    if (closed_) return SyncReport{};
    auto report = vfs_.Sync(ctx);
    closed_ = true;
    vfs_.StopRecalls();
    writeback_.Stop();
    session_.Stop();
    if (!report.ok()) return report;
    {
      MutexLock lock(writeback_.state_.mu);
      writeback_.Break("the disk is unmounted");
    }
    if (const Status ended = session_.Close(ctx); !ended.ok()) return ended.error();
    return report;
  }

  void Abandon() override {
    closed_ = true;
    {
      MutexLock lock(writeback_.state_.mu);
      writeback_.Break("the mount was abandoned");
    }
    vfs_.StopRecalls();
    writeback_.Stop();
    session_.Stop();
  }

 private:
  MountEnv env_;
  MountConfig config_;
  MountState state_;
  Session session_;
  BlockCache cache_;
  SegmentReader reader_;
  Writeback writeback_;
  Vfs vfs_;
  bool closed_ = false;
};

}  // namespace

Result<std::unique_ptr<Mount>> Mount::Open(const MountEnv& env, const MountConfig& config) {
  auto mount = std::make_unique<MountImpl>(env, config);
  OpContext ctx;
  ctx.deadline = env.scheduler.clock().Boot() + config.op_deadline;
  ARCHIL_RETURN_IF_ERROR(mount->Start(ctx));
  return std::unique_ptr<Mount>(std::move(mount));
}

}  // namespace archil
