# Compiler flags, ccache and linker, the same for every target.
find_program(CCACHE ccache)
if(CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER
      ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${CCACHE})
endif()

find_program(MOLD mold)
if(MOLD AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  add_link_options(-fuse-ld=mold)
endif()

add_compile_options(-Wall -Wextra -Wno-unused-parameter -Wno-missing-field-initializers -fno-omit-frame-pointer)
# Paths in messages and debug information do not depend on where the tree lies.
add_compile_options(-ffile-prefix-map=${CMAKE_SOURCE_DIR}/=)
if(ARCHIL_SANITIZE)
  add_compile_options(-fsanitize=${ARCHIL_SANITIZE} -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${ARCHIL_SANITIZE})
endif()
