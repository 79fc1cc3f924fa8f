# Writes poseidon.pc. Its places are those from its own, so that they are true wherever the tree is installed; an
# install's directories may be absolute, and outside its prefix.
set(place ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig)
file(RELATIVE_PATH POSEIDON_PREFIX ${place} ${CMAKE_INSTALL_PREFIX})
file(RELATIVE_PATH POSEIDON_INCLUDES ${place} ${CMAKE_INSTALL_FULL_INCLUDEDIR})
configure_file(${CMAKE_CURRENT_LIST_DIR}/poseidon.pc.in ${CMAKE_CURRENT_BINARY_DIR}/poseidon.pc @ONLY)
