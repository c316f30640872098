# Debian's packages, which `scripts/package deb` makes of a release build with TESSERA_SHARED by `cpack`:
#   tessera      the command, the Python packages, libtessera.so, the libraries that they bring along, pages of the manual, the operator for Kubernetes
#   tessera-mpi  the plugin for MPI
#   tessera-dev  what programs of others build with
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME tessera)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_CONTACT "The developers of Tessera <developers@tessera.invalid>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_PACKAGE_DIRECTORY ${PROJECT_BINARY_DIR}/packages)
set(CPACK_STRIP_FILES ON)
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_GROUPING ONE_PER_GROUP)
set(CPACK_COMPONENTS_ALL runtime operator mpi development)
if(TESSERA_PYTHON)
  list(APPEND CPACK_COMPONENTS_ALL python)
endif()
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
# The libraries that a package needs, by the packages that have them; oneDNN lies in the package.
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${PROJECT_SOURCE_DIR}/.deps/onednn/lib)
set(CPACK_DEBIAN_TESSERA_PACKAGE_NAME tessera)
set(CPACK_DEBIAN_MPI_PACKAGE_NAME tessera-mpi)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME tessera-dev)
if(TESSERA_PYTHON)
  math(EXPR next_minor "${Python_VERSION_MINOR} + 1")
  set(CPACK_DEBIAN_TESSERA_PACKAGE_DEPENDS
    "python3 (>= ${Python_VERSION_MAJOR}.${Python_VERSION_MINOR}), python3 (<< ${Python_VERSION_MAJOR}.${next_minor}), python3-numpy")
endif()
set(own_version "tessera (= ${PROJECT_VERSION})")
set(CPACK_DEBIAN_MPI_PACKAGE_DEPENDS "${own_version}")
# What cmake/TesseraConfig.cmake.in seeks.
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS
  "${own_version}, libgloo-dev, libhwy-dev, libspdlog-dev, libfmt-dev, nlohmann-json3-dev, libssl-dev, libjpeg-dev, libpng-dev, pkg-config")
# By which `tessera job` reads manifests: whoever trains in an image has no need of it.
set(CPACK_DEBIAN_TESSERA_PACKAGE_RECOMMENDS python3-yaml)
set(CPACK_DEBIAN_TESSERA_PACKAGE_SUGGESTS "tessera-mpi, tessera-dev")
# Packages of programs that load libtessera.so depend on libtessera0.1, which only a `tessera` of this minor version is.
set(library libtessera${TESSERA_SOVERSION})
set(CPACK_DEBIAN_TESSERA_PACKAGE_PROVIDES "${library} (= ${PROJECT_VERSION})")
file(WRITE ${PROJECT_BINARY_DIR}/debian/shlibs "libtessera ${TESSERA_SOVERSION} ${library}\n")
file(WRITE ${PROJECT_BINARY_DIR}/debian/triggers "activate-noawait ldconfig\n")
set(CPACK_DEBIAN_TESSERA_PACKAGE_CONTROL_EXTRA "${PROJECT_BINARY_DIR}/debian/shlibs;${PROJECT_BINARY_DIR}/debian/triggers")
# The license of each package, and of what it has of others, which scripts/package writes. OPTIONAL: `cmake --install` goes without.
foreach(component_package IN ITEMS runtime:tessera mpi:tessera-mpi development:tessera-dev)
  string(REPLACE ":" ";" pair ${component_package})
  list(GET pair 0 component)
  list(GET pair 1 package)
  install(FILES ${PROJECT_BINARY_DIR}/copyright/${package}/copyright DESTINATION share/doc/${package} COMPONENT ${component} OPTIONAL)
endforeach()
include(CPack)
cpack_add_component(runtime GROUP tessera)
cpack_add_component(operator GROUP tessera)
cpack_add_component(python GROUP tessera)
cpack_add_component(mpi)
cpack_add_component(development)
