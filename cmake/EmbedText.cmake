# cmake -DOUT=header.h -DNAMESPACE=poseidon "-DFILES=kName=path;..." -P EmbedText.cmake: a header with
# a string constant for each text file.
set(text "#pragma once\n\nnamespace ${NAMESPACE} {\n")
foreach(entry ${FILES})
  string(REGEX MATCH "^([^=]*)=(.*)$" unused "${entry}")
  set(name ${CMAKE_MATCH_1})
  # Brackets and semicolons mean something to CMake's lists, so the file stays one string.
  file(READ "${CMAKE_MATCH_2}" content)
  string(APPEND text "\ninline constexpr const char* ${name} = R\"__(${content})__\";\n")
endforeach()
string(APPEND text "\n}  // namespace ${NAMESPACE}\n")
file(WRITE "${OUT}" "${text}")
