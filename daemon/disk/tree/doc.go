// Package tree walks a tree that belongs to a tenant, who may have made it as nasty as possible and
// may be changing it meanwhile. Purge and relabel (package volume) are visitors of it.
//
// Each directory is opened by one name beneath the descriptor of the directory that has it (enter,
// goBack). What may be there, and what refuses it:
//
//	a symbolic link                    O_NOFOLLOW, RESOLVE_NO_SYMLINKS: ELOOP, with O_DIRECTORY ENOTDIR   TestRefused
//	a FIFO, a socket, a device         O_DIRECTORY: ENOTDIR, and nothing is waited for                    TestRefused
//	a mount, also a bind mount         RESOLVE_NO_XDEV: EXDEV                                             TestRefused
//	".." or "/" as a name              RESOLVE_BENEATH: EXDEV; a directory read has neither               TestRefused
//	a directory replaced or removed    the name is opened once, and all work is at that descriptor        TestReplaced
//	a parent replaced or moved         the identity of what ".." leads to is compared: ErrDirectoryReplaced           TestMovedMeanwhile
//	a parent that is a mount by now    RESOLVE_NO_XDEV for "..": EXDEV                                    TestMovedMeanwhile
//	a tree of any depth                descriptors of Held directories and two more                       TestDeep
//	a tree deeper than memory          ErrDeep below Deepest                                              TestDeepest
//	a directory of any width           its names are read piece by piece                                  TestWide
//	a directory that grows for ever    read once; again only if its visitor wants that, who counts        TestAgain
//	a tree that grows for ever         ErrGrows, when most of it came meanwhile    TestGrowing
//	a tree that takes hours            the context is looked at before each entry                         TestCanceled
//
// ".." is used only below Held directories. Above, descriptors stay open: a directory that is open
// cannot be replaced by another one, and its inode number is not given to another one. A purge
// keeps to that by moving up what lies deeper, which it may as it owns the tree; relabel changes no
// name, and has to go back. A purge goes back as well where no directory above takes what is to be
// moved up, on a full filesystem for instance (TestPurgeOfFullDirectories (daemon/disk/volume)).
//
// The package will not change anything, follow a link, cross a mount, or decide what is entered.
package tree
