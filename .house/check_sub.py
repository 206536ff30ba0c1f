import glob,collections,re
old=collections.defaultdict(set)
for f in glob.glob("/tmp/map/*.names.tsv"):
    for l in open(f):
        m,n,*r=l.rstrip("\n").split("\t"); old[n].add(m)
mine={}; new=collections.defaultdict(list)
for l in open("/tmp/map/replicator_sub.map"):
    p=l.rstrip("\n").split("\t")
    if p[0]=="name": mine[p[1]]=p[2]; new[p[2]].append(p[1])
for o in mine:
    m,n=o.split(":")
    if m not in old[n]: print("NO SUCH",o)
for n,os in new.items():
    if len(os)>1: print("twice",n,os)
    others=[m for m in old.get(n,()) if f"{m}:{n}" not in mine]
    if others: print("TAKEN",n,os,others)
    if len(n)>30: print("long",n)
for f in glob.glob("/tmp/map/*.map"):
    if "replicator_sub" in f: continue
    for l in open(f):
        p=l.rstrip("\n").split("\t")
        if p[0]=="name" and p[2] in new: print("OTHER MAP",f,p,new[p[2]])
# still dup / unmapped in room
for l in open("/tmp/map/replicator.names.tsv"):
    m,n,k,*r=l.rstrip("\n").split("\t"); fl=r[-1]
    if re.match(r"replicator\.(adoption|aligned|sync|transactions)\.",m) and f"{m}:{n}" not in mine:
        if "OWN-MODULE-ONLY" in fl and k=="const": continue
        print("kept",m,n,k,fl[:90])
