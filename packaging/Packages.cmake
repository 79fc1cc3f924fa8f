# `cpack -G DEB` in the build directory: the package poseidon with the command, the daemons and all
# that they need, and libposeidon-dev for programs that link the library.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME poseidon)
set(CPACK_PACKAGE_VENDOR Poseidon)
set(CPACK_PACKAGE_CONTACT "the Poseidon project <poseidon@localhost>")
set(CPACK_PACKAGE_DIRECTORY ${PROJECT_BINARY_DIR}/packages)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
# For the one directory that is there before anything is installed into it, /usr.
set(CPACK_PRE_BUILD_SCRIPTS ${CMAKE_CURRENT_SOURCE_DIR}/open_directories.cmake)
set(CPACK_COMPONENTS_ALL runtime development)
set(CPACK_COMPONENTS_GROUPING IGNORE)

set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)

# Their libraries' packages: what dpkg-shlibdeps finds. The report's scripts are Python's, and Python
# layers want NumPy.
set(CPACK_DEBIAN_RUNTIME_PACKAGE_NAME poseidon)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_RECOMMENDS "python3, python3-matplotlib, python3-numpy, openssh-client")
set(CPACK_COMPONENT_RUNTIME_DESCRIPTION "${PROJECT_DESCRIPTION}
 The command poseidon, the scheduler, the parameter server and the worker,
 and the library that programs of your own use.")

set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libposeidon-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "poseidon (= ${PROJECT_VERSION})")
set(CPACK_COMPONENT_DEVELOPMENT_DESCRIPTION "${PROJECT_DESCRIPTION}: development files
 Headers, and what CMake and pkg-config need to find the library.")

include(CPack)
