// Package filebackend keeps locks in a folder: file:///var/lock/app in a URL. It excludes the
// processes of one machine from each other, without a server, and has every feature that the other
// stores have. It needs Linux; elsewhere opening it is an error that is [errors.ErrUnsupported].
//
// # What is promised
//
// One verb is one critical section under flock(2), in which the key's file is read, changed as
// membackend changes its memory, and replaced by a rename. So a process that is killed at any
// moment leaves the state before or the state after. A file that is torn, foreign or of another
// version is [backend.ErrForeign], and never taken for a free lock.
//
// Leases run by the machine's boot clock, which nobody can set and which counts while the machine
// is suspended. A reboot ends every hold; tokens go on rising, also if the calendar was set back
// meanwhile, and stored states and marks ([backend.Claim.NotBefore]) stay, in a folder that
// outlives it (/var/lock and /tmp often do not).
// The kernel writes to the disk when it likes, so a power failure may leave a stored state of some
// seconds before, or a file that is torn; with file:///FOLDER?fsync=true every change is on the
// disk before its verb answers, which takes as long as the disk does.
//
// A process that ends, by kill -9 as well, is noticed at once: its holds and its places in the
// queue are gone, and those who wait are woken. Not so what it has handed on to a child: see
// [Backend.Process].
//
// # What is not
//
//   - The folder is for one machine. On NFS, SMB and other file systems that machines share, as on
//     FUSE, opening it is [backend.ErrUnsafe], and so is a folder in which a process of another
//     machine is found. Containers of one machine may share a folder.
//   - Nothing but holdfast may delete files in the folder while it is in use: a key's file that is
//     gone is a lock that is free. Keep it from what cleans up /tmp.
//   - A process that is stopped (SIGSTOP, a frozen container) in the middle of a verb, which takes
//     some 100 µs, keeps others from one key in 64: their verbs end with [backend.ErrUnavailable]
//     until it goes on. No lease is granted twice by that.
//   - Whoever may write to the folder may take, free and forge its locks. Files get the permissions
//     of the folder; one that does not exist is made for its owner alone.
package filebackend
