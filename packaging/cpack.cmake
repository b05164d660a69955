# Read by cpack before it builds anything. Without these programs it would make a package that names no dependencies.
if(CPACK_GENERATOR STREQUAL "DEB")
    foreach(program dpkg-shlibdeps file)
        find_program(found_${program} ${program})
        if(NOT found_${program})
            message(FATAL_ERROR "cpack: ${program} is missing; tools/get-deps package installs it")
        endif()
    endforeach()
endif()
