# cmake -DOUT=source.cc -DHEADER=header.h -DNAMESPACE=poseidon "-DFILES=kName=path;..." -P EmbedText.cmake:
# a source that defines the string constants that the header declares, one for each text file.
set(text "#include \"${HEADER}\"\n\nnamespace ${NAMESPACE} {\n")
foreach(entry ${FILES})
  string(REGEX MATCH "^([^=]*)=(.*)$" unused "${entry}")
  set(name ${CMAKE_MATCH_1})
  # Brackets and semicolons mean something to CMake's lists, so the file stays one string.
  file(READ "${CMAKE_MATCH_2}" content)
  string(APPEND text "\nconst char* const ${name} = R\"__(${content})__\";\n")
endforeach()
string(APPEND text "\n}  // namespace ${NAMESPACE}\n")
file(WRITE "${OUT}" "${text}")
