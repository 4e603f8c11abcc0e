// Ops with every field set, of every kind: what golden files pin and fuzz targets start from. Never changed, only added to.
#pragma once

#include <vector>

#include "common/api/ops.h"

namespace archil {

std::vector<Op> SampleOps();
// Values at the limits of common/api/types.h and of the integer types.
std::vector<Op> ExtremeOps();

}  // namespace archil
