# Before packages are made: all directories in them are open to all, whatever the umask is of who makes them.
file(GLOB_RECURSE paths LIST_DIRECTORIES true ${CPACK_TEMPORARY_INSTALL_DIRECTORY}/*)
foreach(path ${paths})
  if(IS_DIRECTORY ${path})
    file(CHMOD ${path} PERMISSIONS
         OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
  endif()
endforeach()
