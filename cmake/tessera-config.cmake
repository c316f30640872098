# find_package(tessera) is find_package(Tessera): the same targets, components and version.
set(tessera_required)
set(tessera_optional)
foreach(component IN LISTS tessera_FIND_COMPONENTS)
  if(tessera_FIND_REQUIRED_${component})
    list(APPEND tessera_required ${component})
  else()
    list(APPEND tessera_optional ${component})
  endif()
endforeach()
# Quietly: what is not found, the caller's find_package says.
find_package(Tessera QUIET CONFIG COMPONENTS ${tessera_required} OPTIONAL_COMPONENTS ${tessera_optional}
  PATHS "${CMAKE_CURRENT_LIST_DIR}" NO_DEFAULT_PATH)
set(tessera_FOUND ${Tessera_FOUND})
set(tessera_NOT_FOUND_MESSAGE "${Tessera_NOT_FOUND_MESSAGE}")
foreach(component IN LISTS tessera_FIND_COMPONENTS)
  set(tessera_${component}_FOUND ${Tessera_${component}_FOUND})
endforeach()
