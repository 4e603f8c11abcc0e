// From the core's vocabulary to the kernel's. Each Reply function answers the request once. When the kernel no longer
// wants the answer (the caller was interrupted), what the answer would have given is taken back.
#pragma once

#include "client/fuse/session.h"

namespace archil::fuse {

struct stat StatOf(const Attr& attr);
double Seconds(absl::Duration ttl);
fuse_entry_param EntryParamOf(const Session& session, const Entry& entry);

// True, and the request answered, unless the call only would have blocked.
bool ReplyStatus(fuse_req_t req, const Status& status);
// The error of a failed result; false if it is kWouldBlock, then nothing is sent.
bool ReplyError(fuse_req_t req, Code code);

bool ReplyEntry(Session& session, fuse_req_t req, const Result<Entry>& result);
bool ReplyAttr(fuse_req_t req, const Result<AttrReply>& result);

}  // namespace archil::fuse
