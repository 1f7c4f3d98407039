# g++ runs each of its programs through this (-wrapper). Before the assembler reads its file, a call
# of the tracer is put at the beginning of each line of the user's sources.
#
# `.loc FILE LINE COLUMN` stands before the first instruction of a line. Before a function has made
# its frame there is no call. Nor is there one where the position is that of the `.loc` before: the
# loop over the elements of an array of __half, which constructs nothing, is no step of a thread.
case "$1" in
*as)
    for word in "$@"; do
        case "$word" in *.s) file=$word ;; esac
    done
    awk '
        $1 == ".file" && $2 ~ /^[0-9]+$/ {
            ours[$2] = /\/mirror\// || !/\/simulator\/include\/|"\/usr\/|\/include\/c\+\+|\/site-packages\//
        }
        $1 == ".cfi_startproc" || $1 == ".cfi_endproc" { has_frame = 0; before = "" }
        $1 ~ /^\.cfi_(def_cfa_register|def_cfa|escape)$/ { has_frame = 1 }
        { print }
        $1 == ".loc" && has_frame {
            here = $2 " " $3 " " $4
            if (ours[$2] && here != before) print "\tcall\tsimulator_trace_line@PLT"
            before = here
        }
    ' "$file" >"$file.traced" && mv "$file.traced" "$file"
    ;;
esac
exec "$@"
