# libtessera.so, for programs that load Tessera instead of having it in themselves. It is made of the static libraries' objects, which are
# position independent: nothing is compiled twice, and every object is in it, with what it registers before `main`.
get_property(libraries GLOBAL PROPERTY TESSERA_LIBRARIES)
set(objects "")
foreach(library IN LISTS libraries)
  list(APPEND objects $<TARGET_OBJECTS:${library}>)
endforeach()
add_library(tessera_shared SHARED ${objects})
# The static libraries name what Tessera links of others. The linker takes nothing of themselves, as all of their objects are there.
target_link_libraries(tessera_shared PRIVATE ${libraries})
# What the public headers include, and no more: programs need no development files of what only Tessera's own sources use.
target_include_directories(tessera_shared INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}> $<INSTALL_INTERFACE:include>)
target_compile_features(tessera_shared INTERFACE cxx_std_20)
target_link_libraries(tessera_shared INTERFACE fmt::fmt)
set(symbols ${CMAKE_CURRENT_LIST_DIR}/libtessera.map)
target_link_options(tessera_shared PRIVATE "LINKER:--version-script=${symbols}" LINKER:-z,defs)
# Before 1.0 a minor version may change what is public, so it is part of the name by which programs load the library.
set(TESSERA_SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
set_target_properties(tessera_shared PROPERTIES EXPORT_NAME shared OUTPUT_NAME tessera LINKER_LANGUAGE CXX
  VERSION ${PROJECT_VERSION} SOVERSION ${TESSERA_SOVERSION} LINK_DEPENDS ${symbols} INSTALL_RPATH "$ORIGIN/tessera/onednn/lib")

# The library stands beside the command, its link for compilers beside the headers.
install(TARGETS tessera_shared EXPORT TesseraSharedTargets
  LIBRARY DESTINATION lib COMPONENT runtime NAMELINK_COMPONENT development)
install(EXPORT TesseraSharedTargets NAMESPACE Tessera:: DESTINATION lib/cmake/Tessera COMPONENT development)
configure_file(${CMAKE_CURRENT_LIST_DIR}/tessera.pc.in ${PROJECT_BINARY_DIR}/tessera.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/tessera.pc DESTINATION lib/pkgconfig COMPONENT development)
