# Writes t9_build.h (run with cmake -P by T9BuildInfo.cmake). Without git, the build id is "unknown".

set(id "unknown")
set(dirty 0)
find_program(git git)
if(git AND EXISTS "${SOURCE_DIR}/.git")
    # The directory may belong to another user (container builds); reading its state is all that happens here.
    execute_process(COMMAND "${git}" -c "safe.directory=*" describe --always --dirty --abbrev=12 --exclude=*
                    WORKING_DIRECTORY "${SOURCE_DIR}" OUTPUT_VARIABLE out RESULT_VARIABLE rc
                    OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    if(rc EQUAL 0 AND NOT out STREQUAL "")
        set(id "${out}")
        if(out MATCHES "-dirty$")
            set(dirty 1)
        endif()
    endif()
endif()
string(REGEX REPLACE "[\"\\\\]" "" FLAGS "${FLAGS}")

set(text "/* Made by the build: do not edit. */
#ifndef T9_BUILD_H
#define T9_BUILD_H
#define T9_VERSION \"${VERSION}\"
#define T9_BUILD_ID \"${id}\"
#define T9_BUILD_DIRTY ${dirty}
#define T9_BUILD_COMPILER \"${COMPILER}\"
#define T9_BUILD_TYPE \"${BUILD_TYPE}\"
#define T9_BUILD_FLAGS \"${FLAGS}\"
#define T9_BUILD_SYSTEM \"${SYSTEM}\"
#endif
")
set(old "")
if(EXISTS "${OUT}")
    file(READ "${OUT}" old)
endif()
if(NOT old STREQUAL text)
    file(WRITE "${OUT}" "${text}")
endif()
