#!/bin/sh
# After relayd was removed. Data and user stay, whatever was asked: events and the host key
# cannot be made again. deb calls it with "remove", "purge" or "upgrade", rpm with the number
# of versions that stay, apk with the version, but not at an upgrade.
set -e

case "$1" in
remove)
	if command -v deb-systemd-helper >/dev/null; then
		deb-systemd-helper mask relayd.service >/dev/null || true
	fi
	;;
purge)
	if command -v deb-systemd-helper >/dev/null; then
		deb-systemd-helper purge relayd.service >/dev/null || true
		deb-systemd-helper unmask relayd.service >/dev/null || true
	fi
	;;
0 | *.*) ;;
*) exit 0 ;;
esac
[ ! -d /run/systemd/system ] || systemctl --system daemon-reload || true
if [ -d /var/lib/relayd ] && [ "$1" != remove ]; then
	echo "relayd: the data stays in /var/lib/relayd, and the user relayd with it; to delete the data:"
	echo "relayd:     rm -r /var/lib/relayd"
fi
