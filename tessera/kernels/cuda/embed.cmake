# Writes OUTPUT, a source with the text of FILES as one string. Lines that include files are left out.
set(text "")
foreach(file ${FILES})
  file(READ ${file} content)
  string(REGEX REPLACE "(^|\n)#include[^\n]*" "\\1" content "${content}")
  string(REGEX REPLACE "(^|\n)#pragma once" "\\1" content "${content}")
  string(APPEND text "R\"TESSERA(${content})TESSERA\"\n")
endforeach()
file(WRITE ${OUTPUT}.new "#include \"tessera/kernels/cuda/core/device_code.h\"

namespace tessera::cuda {

const std::string& device_code() {
  static const std::string text = \"#define TESSERA_DEVICE_CODE 1\\n\"
${text};
  return text;
}

}  // namespace tessera::cuda
")
file(COPY_FILE ${OUTPUT}.new ${OUTPUT} ONLY_IF_DIFFERENT)
