# A part of the install: makes each of `directories` that is missing, and what is missing above it, open to all.
foreach(directory ${directories})
  cmake_path(ABSOLUTE_PATH directory BASE_DIRECTORY "${CMAKE_INSTALL_PREFIX}")
  cmake_path(ABSOLUTE_PATH directory)  # the prefix may be relative
  set(directory "$ENV{DESTDIR}${directory}")
  cmake_path(ABSOLUTE_PATH directory)  # and so may that, whose parents would never come to one that exists
  set(missing)
  while(NOT EXISTS "${directory}")
    list(PREPEND missing "${directory}")
    cmake_path(GET directory PARENT_PATH directory)
  endwhile()
  if(missing)
    file(MAKE_DIRECTORY ${missing})
    file(CHMOD ${missing} PERMISSIONS
         OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
  endif()
endforeach()
