# The library longhaul_cuda: the GPU kernels compiled by nvcc, and their host side. Custom commands in place of CMake's CUDA language, since
# that does not find the libraries of an nvcc from Python wheels. tools/steps/nvcc.mjs installs one.
set(LONGHAUL_NVCC "" CACHE FILEPATH "nvcc of CUDA 12.0 or newer; empty: the one on PATH")
set(nvcc ${LONGHAUL_NVCC})
if(NOT nvcc)
  find_program(nvcc_on_path nvcc REQUIRED)
  set(nvcc ${nvcc_on_path})
endif()
file(REAL_PATH ${nvcc} nvcc_file)
get_filename_component(cuda_root ${nvcc_file} DIRECTORY)
get_filename_component(cuda_root ${cuda_root} DIRECTORY)
find_library(cudart_static NAMES libcudart_static.a REQUIRED NO_DEFAULT_PATH
  PATHS ${cuda_root}/lib ${cuda_root}/lib64 ${cuda_root}/targets/x86_64-linux/lib ${cuda_root}/lib/x86_64-linux-gnu)

# Machine code for A100 and H100; newer GPUs compile the PTX when the program starts.
set(nvcc_flags -ccbin ${CMAKE_CXX_COMPILER} -std=c++20 -O3 -fmad=false
  -gencode=arch=compute_80,code=sm_80 -gencode=arch=compute_90,code=[sm_90,compute_90]
  -Xcompiler=-Wall,-Wextra,-ffp-contract=off -I${CMAKE_CURRENT_SOURCE_DIR}/src)
# Objects, and what check_ptx.sh reads.
set(kernel_folder ${CMAKE_CURRENT_BINARY_DIR}/cuda_kernels)
file(MAKE_DIRECTORY ${kernel_folder})
file(GLOB_RECURSE kernel_sources CONFIGURE_DEPENDS src/cuda/*.cu)
foreach(source ${kernel_sources})
  get_filename_component(name ${source} NAME_WE)
  set(object ${kernel_folder}/${name}.o)
  add_custom_command(OUTPUT ${object} DEPFILE ${object}.d VERBATIM
    COMMAND bash ${CMAKE_CURRENT_SOURCE_DIR}/tools/compile_cuda.sh ${object} ${source} ${nvcc_file} ${nvcc_flags}
    DEPENDS ${source} ${CMAKE_CURRENT_SOURCE_DIR}/tools/compile_cuda.sh
    COMMENT "Compiling ${name}.cu for GPUs")
  list(APPEND kernel_objects ${object})
endforeach()
set_source_files_properties(${kernel_objects} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)

file(GLOB_RECURSE cuda_host_sources CONFIGURE_DEPENDS src/cuda/*.cc)
list(FILTER cuda_host_sources EXCLUDE REGEX "/cuda/device/emulated/")
add_library(longhaul_cuda STATIC ${cuda_host_sources} ${kernel_objects})
target_compile_definitions(longhaul_cuda PUBLIC LONGHAUL_GPU INTERFACE LONGHAUL_CUDA)
# The CUDA runtime is linked statically, and finds the driver when the first call needs it.
target_link_libraries(longhaul_cuda PUBLIC longhaul_engine_core ${cudart_static} ${CMAKE_DL_LIBS} rt)

# What gpu_check.sh measures products against. (Its kernel is no part of the engine, and so not of what check_ptx.sh reads.)
set(rates ${CMAKE_CURRENT_BINARY_DIR}/gpu_rates.o)
add_custom_command(OUTPUT ${rates} DEPFILE ${rates}.d VERBATIM
  COMMAND bash ${CMAKE_CURRENT_SOURCE_DIR}/tools/compile_cuda.sh ${rates} ${CMAKE_CURRENT_SOURCE_DIR}/tools/gpu_rates.cu ${nvcc_file} ${nvcc_flags}
    -I${CMAKE_CURRENT_SOURCE_DIR}/tools
  DEPENDS tools/gpu_rates.cu tools/compile_cuda.sh)
set_source_files_properties(${rates} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
add_executable(longhaul-gpu-rates EXCLUDE_FROM_ALL ${rates})
set_target_properties(longhaul-gpu-rates PROPERTIES LINKER_LANGUAGE CXX)
target_link_libraries(longhaul-gpu-rates PRIVATE longhaul_engine_process longhaul_cuda)
