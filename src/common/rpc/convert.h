// Between the messages of proto/archil/v1 and the types of common/api. Internal to clients and service adaptors.
//
// From* never trusts: enums, sizes and fields that must be there are checked, and what is wrong is an
// Error (kInvalid, kNameTooLong) that names the field. Ids are not judged here, the services do that.
#pragma once

#include <string>
#include <vector>

#include "archil/v1/control.pb.h"
#include "archil/v1/data.pb.h"
#include "archil/v1/meta.pb.h"
#include "common/api/data_service.h"
#include "common/api/meta_service.h"

namespace archil {

void ToProto(Timestamp t, v1::Timestamp* out);
Result<Timestamp> FromProto(const v1::Timestamp& in);
void ToProto(const DataServerInfo& server, v1::DataServer* out);
Result<DataServerInfo> FromProto(const v1::DataServer& in);
void ToProto(const DiskInfo& disk, v1::Disk* out);
Result<DiskInfo> FromProto(const v1::Disk& in);
void ToProto(SessionKey key, v1::SessionKey* out);
SessionKey FromProto(const v1::SessionKey& in);
void ToProto(InodeRange range, v1::InodeRange* out);
InodeRange FromProto(const v1::InodeRange& in);
void ToProto(const OpenSessionRequest& request, v1::OpenSessionRequest* out);
Result<OpenSessionRequest> FromProto(const v1::OpenSessionRequest& in);
void ToProto(const OpenSessionReply& reply, v1::OpenSessionReply* out);
Result<OpenSessionReply> FromProto(const v1::OpenSessionReply& in);
void ToProto(const RenewReply& reply, v1::RenewReply* out);
Result<RenewReply> FromProto(const v1::RenewReply& in);
void ToProto(const CommitRequest& request, v1::CommitRequest* out);
Result<CommitRequest> FromProto(v1::CommitRequest&& in);
void ToProto(const SegmentGrant& grant, v1::SegmentGrant* out);
Result<SegmentGrant> FromProto(const v1::SegmentGrant& in);
void ToProto(const InodeInfo& inode, v1::Inode* out);
Result<InodeInfo> FromProto(v1::Inode&& in);
// Cut after kReplyCutBytes; then not complete.
void ToProto(const DirPage& page, v1::ReadDirReply* out);
Result<DirPage> FromProto(v1::ReadDirReply&& in);
v1::Right ToProto(Right right);
Result<Right> RightFromProto(int in);
void ToProto(const AcquireRequest& request, v1::AcquireRequest* out);
Result<AcquireRequest> FromProto(const v1::AcquireRequest& in);
// Listings are cut as a ReadDirReply's, except the complete ones, which their maker bounds.
void ToProto(const AcquireReply& reply, v1::AcquireReply* out);
Result<AcquireReply> FromProto(v1::AcquireReply&& in);
void ToProto(const ApplyOpRequest& request, v1::ApplyOpRequest* out);
Result<ApplyOpRequest> FromProto(const v1::ApplyOpRequest& in);
void ToProto(const ApplyOpReply& reply, v1::ApplyOpReply* out);
Result<ApplyOpReply> FromProto(v1::ApplyOpReply&& in);
void ToProto(const ReadOnceRequest& request, v1::ReadOnceRequest* out);
Result<ReadOnceRequest> FromProto(const v1::ReadOnceRequest& in);
void ToProto(const ReadOnceReply& reply, v1::ReadOnceReply* out);
Result<ReadOnceReply> FromProto(v1::ReadOnceReply&& in);
void ToProto(const PollReply& reply, v1::PollReply* out);
Result<PollReply> FromProto(const v1::PollReply& in);
void ToProto(const RecallAnswer& answer, v1::AnswerRecallRequest* out);
Result<RecallAnswer> FromProto(const v1::AnswerRecallRequest& in);
void ToProto(const FileLock& lock, v1::FileLock* out);
Result<FileLock> FromProto(const v1::FileLock& in);
void ToProto(const SetLockRequest& request, v1::SetLockRequest* out);
Result<SetLockRequest> FromProto(const v1::SetLockRequest& in);
Result<LockOutcome> OutcomeFromProto(uint32_t in);
void ToProto(const ReclaimRequest& request, v1::ReclaimRequest* out);
Result<ReclaimRequest> FromProto(const v1::ReclaimRequest& in);
void ToProto(const Credit& credit, v1::Credit* out);
Credit FromProto(const v1::Credit& in);
void ToProto(const ReserveSpaceRequest& request, v1::ReserveSpaceRequest* out);
Result<ReserveSpaceRequest> FromProto(const v1::ReserveSpaceRequest& in);
void ToProto(const SettleRequest& request, v1::SettleRequest* out);
Result<SettleRequest> FromProto(const v1::SettleRequest& in);
void ToProto(const RightInfo& info, v1::RightInfo* out);
Result<RightInfo> FromProto(const v1::RightInfo& in);
void ToProto(const ChunkExtents& chunk, v1::ChunkExtents* out);
Result<ChunkExtents> FromProto(v1::ChunkExtents&& in);
void ToProto(const FsStats& stats, v1::StatFsReply* out);
FsStats FromProto(const v1::StatFsReply& in);
void ToProto(const SegmentInfo& info, v1::Segment* out);
Result<SegmentInfo> FromProto(const v1::Segment& in);

Status CheckRights(std::string_view name, size_t count);

template <class Servers>
Result<std::vector<DataServerInfo>> ServersFromProto(const Servers& in) {
  std::vector<DataServerInfo> out;
  out.reserve(in.size());
  for (const v1::DataServer& s : in) {
    ARCHIL_ASSIGN_OR_RETURN(auto server, FromProto(s));
    out.push_back(std::move(server));
  }
  return out;
}

// kInvalid for more than kMaxRights.
template <class Inodes>
Result<std::vector<InodeId>> InodesFromProto(std::string_view name, const Inodes& in) {
  ARCHIL_RETURN_IF_ERROR(CheckRights(name, in.size()));
  std::vector<InodeId> out;
  out.reserve(in.size());
  for (uint64_t ino : in) out.emplace_back(ino);
  return out;
}

// kInvalid "NAME is missing".
Error Missing(std::string_view name);
// kInvalid for text over kMaxText.
Status CheckText(std::string_view name, std::string_view text);

}  // namespace archil
