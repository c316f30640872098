# What programs outside of the project build with: headers, libraries, the command, and find_package(Tessera). By
#   cmake --install build/release --prefix DIR --component development
include(CMakePackageConfigHelpers)

set_target_properties(tessera_kernels PROPERTIES EXPORT_NAME kernels)
set_target_properties(tessera_flags PROPERTIES EXPORT_NAME flags)
install(TARGETS tessera_flags tessera_kernels EXPORT TesseraTargets)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/tessera DESTINATION include COMPONENT development FILES_MATCHING PATTERN "*.h"
  PATTERN "testing" EXCLUDE PATTERN "tools" EXCLUDE PATTERN "testdata" EXCLUDE)
install(EXPORT TesseraTargets NAMESPACE Tessera:: DESTINATION lib/cmake/Tessera COMPONENT development)
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/TesseraConfig.cmake.in
  ${PROJECT_BINARY_DIR}/TesseraConfig.cmake INSTALL_DESTINATION lib/cmake/Tessera)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/TesseraConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/TesseraConfig.cmake ${PROJECT_BINARY_DIR}/TesseraConfigVersion.cmake
  DESTINATION lib/cmake/Tessera COMPONENT development)
# As they were built: they find oneDNN where the build found it.
install(PROGRAMS $<TARGET_FILE:tessera> DESTINATION bin COMPONENT development)
if(TARGET tessera_mpi_plugin)
  install(FILES $<TARGET_FILE:tessera_mpi_plugin> DESTINATION lib COMPONENT development OPTIONAL)
endif()
