// Updates on the device.
#pragma once

#include "cuda/host/cuda_device.h"
#include "pass/forest_pass.h"

extern template class longhaul::ForestPass<longhaul::cuda::CudaDevice>;

namespace longhaul::cuda {

using DeviceTraining = ForestPass<CudaDevice>;

}  // namespace longhaul::cuda
