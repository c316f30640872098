# External packages: Debian 12's, and oneDNN 3, which scripts/setup puts into .deps where the system has none.
list(APPEND CMAKE_PREFIX_PATH ${CMAKE_SOURCE_DIR}/.deps/onednn)
find_package(Threads REQUIRED)
find_package(OpenMP REQUIRED COMPONENTS CXX)
find_package(dnnl 3 REQUIRED CONFIG)
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
find_package(OpenSSL REQUIRED COMPONENTS Crypto SSL)
find_path(ASIO_INCLUDE_DIR asio.hpp REQUIRED)  # Debian's libasio-dev: headers only
find_package(PkgConfig REQUIRED)
pkg_check_modules(HWY REQUIRED IMPORTED_TARGET libhwy)
# For folders of images.
find_package(JPEG)
find_package(PNG)
if(TESSERA_TESTS)
  find_package(GTest REQUIRED)
endif()
if(TESSERA_BENCHMARKS)
  find_package(benchmark REQUIRED)
endif()
# The headers of CUDA 13, of which nothing but the drivers' names and types is used: what they name is opened at run time.
set(TESSERA_CUDA_INCLUDE "")
if(NOT TESSERA_CUDA STREQUAL "OFF" AND NOT TESSERA_SANITIZE)
  find_path(TESSERA_CUDA_HEADERS cuda.h HINTS ${CMAKE_SOURCE_DIR}/.deps/cuda/include $ENV{CUDA_HOME}/include
    /usr/local/cuda/include)
  if(TESSERA_CUDA_HEADERS AND EXISTS ${TESSERA_CUDA_HEADERS}/nvrtc.h AND EXISTS ${TESSERA_CUDA_HEADERS}/cublasLt.h
      AND EXISTS ${TESSERA_CUDA_HEADERS}/cudnn.h)
    file(STRINGS ${TESSERA_CUDA_HEADERS}/cuda.h version REGEX "^#define CUDA_VERSION 13[0-9]+")
    if(version)
      set(TESSERA_CUDA_INCLUDE ${TESSERA_CUDA_HEADERS})
    endif()
  endif()
  if(TESSERA_CUDA STREQUAL "ON" AND NOT TESSERA_CUDA_INCLUDE)
    message(FATAL_ERROR "TESSERA_CUDA=ON: the headers cuda.h, nvrtc.h, cublasLt.h and cudnn.h of CUDA 13 are not found; "
      "name the toolkit in CUDA_HOME, or run scripts/setup cuda")
  endif()
endif()
