#!/busybox sh
# The guest's first program, in its initramfs: modules, the host's / read-only under a layer that can be written, then guest.sh.
# On the kernel's command line: share=TAG of the folder that guest.py made, guest=PATH of guest.sh, keep=PATH,... what must be seen
# though it lies where the guest has a file system of its own.
b() { /busybox "$@"; }
b mkdir -p /proc /sys /dev /lower /layer /new
b mount -t proc proc /proc; b mount -t sysfs sys /sys; b mount -t devtmpfs dev /dev
for module in $(b cat /modules/order); do b insmod /modules/$module || b echo "initramfs: no module $module"; done
for word in $(b cat /proc/cmdline); do
  case $word in guest=*) guest=${word#*=} ;; keep=*) keep=${word#*=} ;; esac
done
files=trans=virtio,version=9p2000.L,msize=512000
b mount -t 9p -o $files,cache=loose,ro host /lower || b echo "initramfs: the host's files are not here"
b mount -t tmpfs -o size=75% layer /layer; b mkdir -p /layer/upper /layer/work
b mount -t overlay -o lowerdir=/lower,upperdir=/layer/upper,workdir=/layer/work overlay /new
for own in tmp run dev/shm; do
  case $own in dev*) b mount --move /dev /new/dev; b mkdir -p /new/dev/shm /new/dev/pts ;; esac
  b mount -t tmpfs -o mode=1777 own /new/$own
done
b mount -t devpts devpts /new/dev/pts
IFS=,; for path in $keep; do b mkdir -p /new$path; b mount --bind /lower$path /new$path; done; unset IFS
b mkdir -p /new/run/guest
# Not cached: what a command has printed is the host's at once, even if the guest is killed.
b mount -t 9p -o $files,cache=none share /new/run/guest || b echo "initramfs: no shared folder"
b mount --move /proc /new/proc; b mount --move /sys /new/sys
exec /busybox switch_root /new /bin/bash $guest
