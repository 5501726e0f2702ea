// Package target mounts volumes where kubelet wants them, and unmounts them: below kubelet's root
// directory, in the form
//
//	ROOT/pods/POD/volumes/kubernetes.io~csi/VOLUME/NAME
//
// in which kubelet makes all but the last (pkg/volume/csi, getTargetPath). NAME is made and removed
// here.
//
// A path is used once, to open the directory above NAME beneath pods; everything else goes through
// that descriptor. What may be in the way, and what refuses it:
//
//	another form of the path      parse                                               TestForm
//	".." or another spelling      parse                                               TestForm
//	a link below pods             RESOLVE_NO_SYMLINKS: ELOOP                          TestLinks
//	a mount below pods            RESOLVE_NO_XDEV: EXDEV                              TestMountsInTheWay
//	a link or a file as NAME      O_DIRECTORY | O_NOFOLLOW; UMOUNT_NOFOLLOW, rmdir(2)  TestLinks
//	another mount on NAME         the mount table: ErrOccupied                        TestOccupied
//	files in NAME                 rmdir(2): ENOTEMPTY                                 TestUnpublishRemovesNothingElse
//
// Unpublishing does not touch the filesystem that is mounted, so that it works while that hangs
// (umount2 with MNT_DETACH finds the mount from the directory above, and revalidates nothing:
// LOOKUP_MOUNTPOINT in fs/namei.c).
//
// The package will not decide which volume may be mounted, and it knows no pool.
package target
