// A LostLog with every kind of op: what the golden file pins and the fuzz target starts from. Never changed, only added
// to.
#pragma once

#include "client/recovery/lost_log.h"

namespace archil {

LostLog SampleLostLog();

}  // namespace archil
