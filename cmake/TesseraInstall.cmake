# What is installed, by `cmake --install build/release --prefix DIR [--component NAME]`; python/CMakeLists.txt has the Python packages, component
# `python`, and deploy/CMakeLists.txt the operator for Kubernetes, component `operator`.
#   runtime      the command, the libraries that it brings along, its pages of the manual; with TESSERA_SHARED libtessera.so
#   mpi          the plugin for MPI
#   development  what programs outside of the project build with: headers, libraries, and find_package(Tessera)
include(CMakePackageConfigHelpers)

set_target_properties(tessera_kernels PROPERTIES EXPORT_NAME kernels)
set_target_properties(tessera_flags PROPERTIES EXPORT_NAME flags)
install(TARGETS tessera_flags tessera_kernels EXPORT TesseraTargets)
install(CODE "set(SOURCE \"${PROJECT_SOURCE_DIR}\")
set(DESTINATION \"\${CMAKE_INSTALL_PREFIX}/include\")
include(\"${PROJECT_SOURCE_DIR}/cmake/install_headers.cmake\")" COMPONENT development)
install(EXPORT TesseraTargets NAMESPACE Tessera:: DESTINATION lib/cmake/Tessera COMPONENT development)
# A oneDNN that scripts/setup has fetched goes along: the clone may be gone when a program runs. The system's own stays.
string(FIND "${dnnl_DIR}" "${PROJECT_SOURCE_DIR}/.deps/onednn/" fetched_onednn)
set(TESSERA_ONEDNN_DIR "${dnnl_DIR}")
if(fetched_onednn EQUAL 0)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/.deps/onednn/ DESTINATION lib/tessera/onednn COMPONENT development PATTERN "libdnnl.so.*" EXCLUDE)
  file(GLOB libraries ${PROJECT_SOURCE_DIR}/.deps/onednn/lib/libdnnl.so.*)
  install(FILES ${libraries} DESTINATION lib/tessera/onednn/lib COMPONENT runtime)
  set(TESSERA_ONEDNN_DIR "\${PACKAGE_PREFIX_DIR}/lib/tessera/onednn/lib/cmake/dnnl")
endif()
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/TesseraConfig.cmake.in
  ${PROJECT_BINARY_DIR}/TesseraConfig.cmake INSTALL_DESTINATION lib/cmake/Tessera)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/TesseraConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/TesseraConfig.cmake ${PROJECT_BINARY_DIR}/TesseraConfigVersion.cmake
  ${PROJECT_SOURCE_DIR}/cmake/tessera-config.cmake DESTINATION lib/cmake/Tessera COMPONENT development)
install(FILES ${PROJECT_BINARY_DIR}/TesseraConfigVersion.cmake RENAME tessera-config-version.cmake
  DESTINATION lib/cmake/Tessera COMPONENT development)
# The wheel has places of its own.
set_property(TARGET tessera APPEND PROPERTY INSTALL_RPATH "$ORIGIN/../lib/tessera/onednn/lib")
install(TARGETS tessera RUNTIME DESTINATION bin COMPONENT runtime)
# What scripts/package has written.
install(DIRECTORY ${PROJECT_BINARY_DIR}/share/ DESTINATION share COMPONENT runtime OPTIONAL)
if(TARGET tessera_mpi_plugin)
  set_property(TARGET tessera_mpi_plugin APPEND PROPERTY INSTALL_RPATH "$ORIGIN/tessera/onednn/lib")
  install(TARGETS tessera_mpi_plugin LIBRARY DESTINATION lib COMPONENT mpi OPTIONAL)
endif()
