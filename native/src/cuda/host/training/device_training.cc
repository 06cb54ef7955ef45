#include "cuda/host/training/device_training.h"

#include "pass/backward.h"
#include "pass/driver.h"
#include "pass/forward.h"
#include "pass/head.h"

template class longhaul::ForestPass<longhaul::cuda::CudaDevice>;
