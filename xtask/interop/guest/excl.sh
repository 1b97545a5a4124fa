# Two clients race: the same script runs in two guests at once. What each wins is counted by the host. Who wins rests a
# little, so that the other comes near.
nfs_mount "noac,lookupcache=none"
cd /mnt
mark create
await create
step exclusive creation
# Linux makes the verifier of an exclusive CREATE from its clock's ticks and the process's number. Guests that boot
# alike at the same time have both in common, and then the server rightly takes the second CREATE for the first one sent
# again. So the numbers differ.
if [ "$WHO" = right ]; then for ((i = 0; i < 100; i++)); do (:); done; fi
(
    # A guest that comes a little later may win none.
    : >/tmp/won
    set -C
    won=0
    for ((i = 0; i < 150; i++)); do
        if { echo "$WHO" >"race-$i"; } 2>/dev/null; then
            won=$((won + 1))
            echo "race-$i" >>/tmp/won
        fi
    done
    echo "$won" >/job/won-create
)
step what was won stays
while read -r file; do equal "$(cat "$file")" "$WHO" "$file"; done </tmp/won
step folders
mark mkdir
await mkdir
won=0
for ((i = 0; i < 150; i++)); do if mkdir "folder-$i" 2>/dev/null; then won=$((won + 1)); sleep 0.02; fi; done
echo "$won" >/job/won-mkdir
step links
echo "$WHO" >"own-$WHO"
mark link
await link
won=0
for ((i = 0; i < 150; i++)); do if ln "own-$WHO" "link-$i" 2>/dev/null; then won=$((won + 1)); sleep 0.02; fi; done
echo "$won" >/job/won-link
equal "$(stat -c %h "own-$WHO")" $((won + 1)) "links"
cd /
nfs_unmount
