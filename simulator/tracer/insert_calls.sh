# g++ runs each of its programs through this (-wrapper). Before the assembler reads its file, a call
# of the tracer is put at the beginning of each line of the user's sources.
#
# `.loc FILE LINE COLUMN` stands before the first instruction of a line. Before a function has made
# its frame there is no call. Nor is there one where the position is that of the `.loc` before: the
# loop over the elements of an array of __half, which constructs nothing, is no step of a thread.
#
# A line with nothing but a call that is inlined, such as `__syncthreads();`, has no `.loc`. Its
# beginning is the label of the inlined block, of which the debug information tells the line
# (DW_TAG_inlined_subroutine: low_pc, high_pc, call_file, call_line, call_column).
case "$1" in
*as)
    for word in "$@"; do
        case "$word" in *.s) file=$word ;; esac
    done
    awk '
        FNR == 1 { pass++ }
        pass == 1 {
            if ($1 == ".quad" && $2 ~ /^\.LBB[0-9]+$/) {
                label = $2
                told = 0
            } else if (label != "" && !told && $2 == ".LBE" substr(label, 5) "-" label) {
                told = 1
            } else if (label != "" && told && told < 4 && $1 ~ /^\.(byte|value|long)$/) {
                calls[label] = calls[label] " " $2
                told++
            } else {
                label = ""
            }
            next
        }
        $1 == ".file" && $2 ~ /^[0-9]+$/ {
            ours[$2] = /\/mirror\// || !/\/simulator\/include\/|"\/usr\/|\/include\/c\+\+|\/site-packages\//
        }
        $1 == ".cfi_startproc" || $1 == ".cfi_endproc" { has_frame = 0; before = line = "" }
        $1 ~ /^\.cfi_(def_cfa_register|def_cfa|escape)$/ { has_frame = 1 }
        has_frame && substr($1, 1, 4) == ".LBB" && (it = substr($1, 1, length($1) - 1)) in calls {
            if (split(calls[it], at, " ") == 3) {
                of = number(at[1])
                if (ours[of] && of " " number(at[2]) != line) {
                    line = of " " number(at[2])
                    before = line " " number(at[3])
                    print "\t.loc " before "\n\tcall\tsimulator_trace_line@PLT"
                }
            }
        }
        { print }
        $1 == ".loc" && has_frame {
            here = $2 " " $3 " " $4
            if (ours[$2] && here != before) print "\tcall\tsimulator_trace_line@PLT"
            if (ours[$2]) line = $2 " " $3
            before = here
        }
        function number(text,    value, i) {
            if (substr(text, 1, 2) != "0x") return text + 0
            for (i = 3; i <= length(text); i++)
                value = 16 * value + index("0123456789abcdef", tolower(substr(text, i, 1))) - 1
            return value
        }
    ' "$file" "$file" >"$file.traced" && mv "$file.traced" "$file"
    ;;
esac
exec "$@"
