# The two functions that every CMakeLists.txt of the project uses, and the settings that hold everywhere.
#   tessera_library(ir DEPS mesh tensor SOURCES graph.cc ...)      one folder, one target tessera_ir
#   tessera_test(graph_test DEPS ir [LABELS fast] [SOURCES ...])   one program of claims, one ctest entry

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")
if(TESSERA_SANITIZE)
  # The instrumented build takes longest to compile, not to run: with the checks of undefined behaviour gcc takes three
  # times as long at -O1. What computes in loops is optimised all the same, see tessera_library.
  set(CMAKE_CXX_FLAGS_RELEASE "-O0")
  set(TESSERA_LOOPS tensor mesh kernels_reference kernels_cpu ops compiler)
endif()
set(CMAKE_CXX_FLAGS_DEBUG "-O0 -g1")

find_program(TESSERA_CCACHE ccache)
if(TESSERA_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${TESSERA_CCACHE})
endif()

add_library(tessera_flags INTERFACE)
# They are the project's own: a program that links its libraries has flags of its own, and so has a project that this one is a part of.
if(PROJECT_IS_TOP_LEVEL)
  target_compile_options(tessera_flags INTERFACE
    "$<BUILD_INTERFACE:-Wall;-Wextra;-Werror;-Wno-missing-field-initializers>")
endif()
if(PROJECT_IS_TOP_LEVEL AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # gcc 12 reports these falsely inside the standard library and fmt once they are inlined.
  set(false_warnings -Wno-stringop-overflow -Wno-stringop-overread -Wno-array-bounds -Wno-maybe-uninitialized
    -Wno-restrict -Wno-dangling-pointer)
  target_compile_options(tessera_flags INTERFACE "$<BUILD_INTERFACE:${false_warnings}>")
endif()
target_include_directories(tessera_flags INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}> $<INSTALL_INTERFACE:include>)
target_compile_features(tessera_flags INTERFACE cxx_std_20)
# An error's place in the sources is said from the project's folder on: what is handed out says nothing of the machine
# that built it.
target_compile_options(tessera_flags INTERFACE
  "$<BUILD_INTERFACE:$<$<CXX_COMPILER_ID:GNU,Clang>:-fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=>>")
if(TESSERA_SANITIZE)
  target_compile_options(tessera_flags INTERFACE -fsanitize=${TESSERA_SANITIZE} -fno-sanitize-recover=all
    -fno-omit-frame-pointer -g1)
  target_link_options(tessera_flags INTERFACE -fsanitize=${TESSERA_SANITIZE})
  if(TESSERA_SANITIZE STREQUAL "thread" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # Asio has fences, which TSan does not see. Each of its loops here belongs to one thread.
    target_compile_options(tessera_flags INTERFACE -Wno-tsan)
  endif()
endif()

# Compiles up to 8 sources of a folder as one; one that has compile options or definitions of its own stays by itself.
function(tessera_units target)
  foreach(source ${ARGN})
    cmake_path(GET source PARENT_PATH folder)
    string(REPLACE "${PROJECT_BINARY_DIR}" "made" folder "${folder}")  # a source that the build makes
    string(MAKE_C_IDENTIFIER "in_${folder}" folder)
    if(NOT DEFINED ${folder}_sources)
      set(${folder}_sources 0)
    endif()
    math(EXPR unit "${${folder}_sources} / 8")
    math(EXPR ${folder}_sources "${${folder}_sources} + 1")
    set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${folder}_${unit})
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  # A unit's sources are no headers: their types may be unnamed outside of them.
  target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
endfunction()

# What `scripts/test` compiles: the programs of the suite `fast`, and what those of it start or install.
add_custom_target(suite_fast)

# tessera_library(NAME [OWN_UNITS] [RUNS_RARELY] DEPS folder... SOURCES file... [LINK external...] [PRIVATE_LINK external...])
# OWN_UNITS: each source is compiled by itself, whatever TESSERA_UNITY says.
# RUNS_RARELY: no step of a training waits for this library: compiling it fast counts for more than running it fast.
function(tessera_library name)
  cmake_parse_arguments(arg "OWN_UNITS;RUNS_RARELY" "" "DEPS;SOURCES;LINK;PRIVATE_LINK" ${ARGN})
  add_library(tessera_${name} STATIC ${arg_SOURCES})
  if(TESSERA_SANITIZE)  # only what its tests need is worth compiling
    set_target_properties(tessera_${name} PROPERTIES EXCLUDE_FROM_ALL ON)
    if("${name}" IN_LIST TESSERA_LOOPS)
      target_compile_options(tessera_${name} PRIVATE -O1)
    endif()
  endif()
  if(TESSERA_UNITY AND NOT arg_OWN_UNITS)
    tessera_units(tessera_${name} ${arg_SOURCES})
  endif()
  if(arg_RUNS_RARELY)
    target_compile_options(tessera_${name} PRIVATE $<$<CONFIG:Release>:-O1>)
  endif()
  list(TRANSFORM arg_DEPS PREPEND tessera_)
  target_link_libraries(tessera_${name} PUBLIC tessera_flags ${arg_DEPS} ${arg_LINK} PRIVATE ${arg_PRIVATE_LINK})
  # What programs link to: see TesseraInstall.cmake and TesseraShared.cmake.
  set(library ${PROJECT_SOURCE_DIR}/tessera)
  cmake_path(IS_PREFIX library ${CMAKE_CURRENT_SOURCE_DIR} is_of_library)
  if(is_of_library AND NOT CMAKE_CURRENT_SOURCE_DIR MATCHES "/(testing|tools)$" AND NOT TESSERA_SANITIZE)
    set_target_properties(tessera_${name} PROPERTIES EXPORT_NAME ${name})
    if(TESSERA_INSTALL)
      install(TARGETS tessera_${name} EXPORT TesseraTargets ARCHIVE DESTINATION lib COMPONENT development)
    endif()
    set_property(GLOBAL APPEND PROPERTY TESSERA_LIBRARIES tessera_${name})
    add_dependencies(suite_fast tessera_${name})
  endif()
endfunction()

# tessera_program(NAME [OWN_LOOPS] DEPS folder... SOURCES file...)
# OWN_LOOPS: the program computes in loops of its own; others read options and call libraries, which stay optimised.
function(tessera_program name)
  cmake_parse_arguments(arg "OWN_LOOPS" "" "DEPS;SOURCES;LINK" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  if(NOT arg_OWN_LOOPS AND NOT TESSERA_SANITIZE)
    target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-O1>)
  endif()
  if(TESSERA_SANITIZE)
    set_target_properties(${name} PROPERTIES EXCLUDE_FROM_ALL ON)
  endif()
  if(TESSERA_UNITY)
    tessera_units(${name} ${arg_SOURCES})
  endif()
  list(TRANSFORM arg_DEPS PREPEND tessera_)
  target_link_libraries(${name} PRIVATE tessera_flags ${arg_DEPS} ${arg_LINK})
endfunction()

# tessera_test(NAME DEPS folder... [SOURCES file...] [LABELS suite...] [TIMEOUT s]); without SOURCES: NAME.cc.
# The label names the suite that scripts/test runs it in: `fast` (default) or a slow one's name. `no-sanitizer` in
# LABELS keeps it out of the sanitizer suites, `threads` puts it into that of TSan.
function(tessera_test name)
  if(NOT TESSERA_TESTS)
    return()
  endif()
  cmake_parse_arguments(arg "" "TIMEOUT" "DEPS;SOURCES;LABELS;LINK" ${ARGN})
  if(NOT arg_SOURCES)
    set(arg_SOURCES ${name}.cc)
  endif()
  if(NOT arg_LABELS)
    set(arg_LABELS fast)
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  if(TESSERA_SANITIZE)
    # Only what the sanitizer suites run is worth compiling for them.
    set(wanted fast)
    if(TESSERA_SANITIZE STREQUAL "thread")
      set(wanted threads)
    endif()
    if(NOT "${wanted}" IN_LIST arg_LABELS OR "no-sanitizer" IN_LIST arg_LABELS)
      return()
    endif()
    math(EXPR arg_TIMEOUT "${arg_TIMEOUT} * 5")
  endif()
  add_executable(${name} ${arg_SOURCES})
  list(TRANSFORM arg_DEPS PREPEND tessera_)
  target_link_libraries(${name} PRIVATE tessera_flags ${arg_DEPS} ${arg_LINK} GTest::gmock GTest::gtest_main)
  if("fast" IN_LIST arg_LABELS)
    add_dependencies(suite_fast ${name})
  endif()
  # A test's source takes longer to compile than to run; the libraries stay optimized.
  if(TESSERA_SANITIZE OR "fast" IN_LIST arg_LABELS)
    target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-O0>)
  else()
    target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-O1>)
  endif()
  if(TESSERA_UNITY)
    tessera_units(${name} ${arg_SOURCES})
  endif()
  # Only sources that name these paths are compiled with them: the objects of the others serve every clone.
  foreach(source IN LISTS arg_SOURCES)
    get_filename_component(path ${source} ABSOLUTE)
    file(STRINGS ${path} uses REGEX "TESSERA_(SOURCE|BINARY)_DIR" LIMIT_COUNT 1)
    if(uses)
      set_property(SOURCE ${source} APPEND PROPERTY COMPILE_DEFINITIONS TESSERA_SOURCE_DIR="${PROJECT_SOURCE_DIR}"
        TESSERA_BINARY_DIR="${PROJECT_BINARY_DIR}")
    endif()
  endforeach()
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES LABELS "${arg_LABELS}" TIMEOUT ${arg_TIMEOUT})
endfunction()
