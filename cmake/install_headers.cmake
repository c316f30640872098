# Run by `cmake --install`: copies tessera/tessera.h, tessera/engine.h and every header of the project that they lead to, so that what is
# installed is what a program can include, and nothing that only tests or Tessera's own sources use.
#   SOURCE  the project's folder        DESTINATION  the folder of headers
cmake_policy(VERSION 3.25)
set(waiting tessera/tessera.h tessera/engine.h)
set(seen ${waiting})
while(waiting)
  list(POP_FRONT waiting header)
  file(STRINGS ${SOURCE}/${header} includes REGEX "^#include \"tessera/")
  foreach(line IN LISTS includes)
    string(REGEX REPLACE "^#include \"([^\"]+)\".*" "\\1" included "${line}")
    if(NOT included IN_LIST seen)
      list(APPEND seen ${included})
      list(APPEND waiting ${included})
    endif()
  endforeach()
  cmake_path(GET header PARENT_PATH folder)
  file(INSTALL ${SOURCE}/${header} DESTINATION ${DESTINATION}/${folder})
endwhile()
